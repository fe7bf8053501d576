"""A published checkpoint: its arrays, source, model arguments and preprocessing, before any weight is read."""

import math
from dataclasses import dataclass

from keras_vit.class_names import NUM_CLASSES
from keras_vit.images import as_size
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.named_weights import FIRST_KERNELS, PATCH_KERNEL
from keras_vit.variants import variant_name
from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Source

SHOWN_APART = ("preprocessing", "class_names")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in a file, a folder or a model in memory.

    Args:
        tensors: Its arrays, under the names in `source.naming`.
        source: The project that published it.
        arguments: Arguments of its `VisionTransformer` or `BiT`. `image_size` and `num_heads` are None where the file
            does not specify them.
        preprocessing: Fields of its `Preprocessing`, without the size.
        image_size: The size that its own preprocessing makes, if the positions are those of another size.
        states_size: Whether a file beside the weights states the size, so that a square grid is no guess.
        prefix_is_guess: Whether the number of positions alone shows if the tokens before the patches have some.
    """

    tensors: Tensors
    source: Source
    arguments: dict
    preprocessing: dict
    image_size: int | None = None
    prefix_is_guess: bool = False
    states_size: bool = False

    @property
    def channels(self) -> int:
        """Number of channels of the images, by the first kernel."""
        naming, is_hybrid = self.source.naming, self.is_bit or self.arguments.get("resnet_stages") is not None
        paths = [path for path in FIRST_KERNELS if is_hybrid != (path == PATCH_KERNEL)]
        names = [naming.source_arrays(path, (1, 1, 3, 1))[0].name for path in paths]
        shape = next((self.tensors.shapes[name] for name in names if name in self.tensors.shapes), ())
        return shape[1 if naming.layout == "torch" else 2] if len(shape) == 4 else 3

    @property
    def is_bit(self) -> bool:
        return "stages" in self.arguments

    @property
    def num_heads(self) -> int | None:
        """As specified in the file, or else as in published models of its width; None if unknown, or for a BiT."""
        return self.arguments.get("num_heads") or published_num_heads(self.arguments.get("width"))

    def describe(self) -> dict:
        """What `keras-vit describe` prints."""
        kind, arguments, size = "BiT", self.arguments, self.image_size or self.arguments.get("image_size")
        if not self.is_bit:
            kind, arguments = "VisionTransformer", {**arguments, "num_heads": self.num_heads, "image_size": size}
        prepared = Preprocessing(as_size(size or 224), **self.preprocessing).of_channels(self.channels)
        preprocessing = prepared.get_config() | {"image_size": size}
        num_weights = sum(math.prod(shape) for shape in self.tensors.shapes.values())
        return description(self.source.title, kind, arguments, preprocessing, num_weights)


def description(source: str, architecture: str, arguments: dict, preprocessing: dict, num_weights: int) -> dict:
    """What `keras-vit describe` prints of a checkpoint or a model."""
    no_size = "any" if architecture == "BiT" else "not in the file"
    imagenet = arguments["num_classes"] in NUM_CLASSES
    no_names = "not in the file; ImageNet's are used" if imagenet else "not in the file"
    if arguments.get("projection"):
        no_names = "none: the head is a projection, as CLIP's, or a regression"
    return {
        "source": source,
        "architecture": architecture,
        "variant": variant_name(arguments) or "custom",
        "image_size": arguments.get("image_size") or no_size,
        "num_classes": arguments["num_classes"],
        "class_names": arguments.get("class_names") or no_names,
        "gelu": arguments.get("gelu", "n/a"),
        "epsilon": arguments.get("epsilon", "n/a"),
        "preprocessing": preprocessing,
        "weights": num_weights,
        "arguments": {name: value for name, value in arguments.items() if name not in SHOWN_APART},
    }


def published_num_heads(width: int | None) -> int | None:
    """Number of attention heads of published models of a width; None if there are none."""
    if width in (1152, 1280, 1408, 1664):
        return 16
    return width // 64 if width and width % 64 == 0 and width <= 1024 else None
