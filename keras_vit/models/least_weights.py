"""How many weights a description of a model declares at least: held against its file before the model is built."""

from keras_vit.images import as_size


def least_weights(arguments: dict) -> int:
    """A lower bound of the number of weights of a VisionTransformer, BiT or AxialResNet, without building it.

    Args:
        arguments: The arguments or configuration of the model. Without `image_size`, positions do not count.

    Raises:
        TypeError: A number is of another type.
    """
    width, depth, stages = arguments.get("width", 0), arguments.get("depth", 0), arguments.get("stages")
    classes = arguments.get("num_classes", 0)
    if stages:  # one kernel of each unit, and the head, at the width of the first stage
        filters = 32 * arguments.get("width_factor", 1)
        return int(filters * (sum(stages) * filters + classes))
    if not depth:
        return 0
    total = depth * width * (4 * width + 2 * arguments.get("mlp_dim", 0)) + width * arguments.get("register_tokens", 0)
    hidden = arguments.get("representation_size")
    total += hidden * (width + classes) if hidden else width * classes
    height, columns = as_size(arguments["patch_size"], "patch_size")
    if arguments.get("resnet_stages") is None:
        total += 3 * height * columns * width
    size = arguments.get("image_size")
    if size is not None and arguments.get("position_embedding", "learned_1d") == "learned_1d":
        rows, pixels = as_size(size)
        total += rows // height * (pixels // columns) * width
    return total
