"""The range of pixels that models take, and image sizes.

Every published ViT except DeiT takes RGB pixels in [-1, 1] (google-research/vision_transformer, input_pipeline.py).
Keras is imported in functions, because reading a checkpoint needs sizes but no Keras.
"""

from collections.abc import Sequence
from numbers import Integral

import numpy as np

__all__ = ["as_size", "denormalize", "normalize", "patch_grid"]


def normalize(images, mean=0.5, std=0.5):
    """Scales pixels in [0, 255] to float32, (x / 255 - mean) / std: by default to [-1, 1].

    Any shape; `mean` and `std` are numbers or have one value per channel.
    """
    from keras import ops

    mean, std = (np.asarray(values, "float32") for values in (mean, std))
    return (ops.cast(images, "float32") / 255.0 - mean) / std


def denormalize(images):
    """Scales floats in [-1, 1] back to uint8 pixels in [0, 255], rounded and clipped. Any shape."""
    from keras import ops

    pixels = ops.round((ops.cast(images, "float32") + 1.0) * 127.5)
    return ops.cast(ops.clip(pixels, 0.0, 255.0), "uint8")


def is_integer(value, minimum: int = 1) -> bool:
    """Whether a value is an integer of at least `minimum`; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def as_size(size, name: str = "image_size") -> tuple[int, int]:
    """A size in pixels, one number or (height, width), as (height, width).

    Raises:
        ValueError: It is not a positive integer or a pair of them.
    """
    pair = (size, size) if isinstance(size, Integral) else size
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    if not is_pair or not all(map(is_integer, pair)):
        raise ValueError(
            f"`{name}` must be a positive integer of pixels or a pair (height, width) of them. Received: {size!r}"
        )
    return int(pair[0]), int(pair[1])


def shortest_size(size: Sequence[int]) -> int | tuple[int, int]:
    """The inverse of `as_size`: one number for a square, else (height, width)."""
    height, width = size
    return height if height == width else (height, width)


def patch_grid(image_size, patch_size) -> tuple[int, int]:
    """Number of patches in an image, as (rows, columns).

    Raises:
        ValueError: The patch size does not divide the image size; the message has the nearest sizes that it does.
    """
    image = as_size(image_size)
    patch = as_size(patch_size, "patch_size")
    if any(side % step for side, step in zip(image, patch)):
        smaller = tuple(side // step * step for side, step in zip(image, patch))
        larger = tuple(-(-side // step) * step for side, step in zip(image, patch))
        fitting = [shortest_size(size) for size in (smaller, larger) if all(size)]
        raise ValueError(
            f"An image of {image} pixels (height, width) cannot be cut into patches of {patch}. "
            f"Use image_size={' or image_size='.join(map(str, fitting))}, or another patch_size."
        )
    return image[0] // patch[0], image[1] // patch[1]
