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
    if stages:  # one kernel of each unit, at the width of the first stage
        return int(sum(stages) * (32 * arguments.get("width_factor", 1)) ** 2)
    if not depth:
        return 0
    total = depth * width * (4 * width + 2 * arguments.get("mlp_dim", 0))
    total += width * (arguments.get("num_classes", 0) + arguments.get("register_tokens", 0))
    size, kind = arguments.get("image_size"), arguments.get("position_embedding", "learned_1d")
    if size is not None and kind == "learned_1d":
        (height, columns), patch = as_size(size), as_size(arguments["patch_size"], "patch_size")
        total += height // patch[0] * (columns // patch[1]) * width
    return total
