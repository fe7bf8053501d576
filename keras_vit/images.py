"""The pixel contract: what an image looks like when it enters a model, and how sizes are written.

Every published ViT but DeiT takes RGB pixels in [-1, 1] (google-research/vision_transformer, input_pipeline.py).
"""

from numbers import Integral

import numpy as np
from keras import ops


def normalize(images, mean=0.5, std=0.5):
    """Maps pixels in [0, 255] to float32, (x / 255 - mean) / std: by default in [-1, 1].

    Any shape; `mean` and `std` are numbers, or one a channel.
    """
    mean, std = (np.asarray(values, "float32") for values in (mean, std))
    return (ops.cast(images, "float32") / 255.0 - mean) / std


def denormalize(images):
    """Maps float pixels in [-1, 1] back to uint8 in [0, 255], rounding and clipping. Any shape."""
    pixels = ops.round((ops.cast(images, "float32") + 1.0) * 127.5)
    return ops.cast(ops.clip(pixels, 0.0, 255.0), "uint8")


def as_size(size, name: str = "image_size") -> tuple[int, int]:
    """Reads a size in pixels, one number or (height, width), as (height, width).

    Raises:
        ValueError: It is neither a positive integer nor a pair of them.
    """
    pair = (size, size) if isinstance(size, Integral) else size
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    if not is_pair or not all(isinstance(x, Integral) and not isinstance(x, bool) and int(x) > 0 for x in pair):
        raise ValueError(
            f"`{name}` must be a positive integer of pixels or a pair (height, width) of them. Received: {size!r}"
        )
    return int(pair[0]), int(pair[1])


def patch_grid(image_size, patch_size) -> tuple[int, int]:
    """Returns how many patches fit an image, as (rows, columns).

    Raises:
        ValueError: The patch does not divide the image; the message names the nearest sizes that fit.
    """
    image = as_size(image_size)
    patch = as_size(patch_size, "patch_size")
    if any(side % step for side, step in zip(image, patch)):
        smaller = tuple(side // step * step for side, step in zip(image, patch))
        larger = tuple(-(-side // step) * step for side, step in zip(image, patch))
        fitting = [size for size in (smaller, larger) if all(size)]
        raise ValueError(
            f"An image of {image} pixels (height, width) cannot be cut into patches of {patch}. "
            f"Use image_size={' or image_size='.join(map(str, fitting))}, or another patch_size."
        )
    return image[0] // patch[0], image[1] // patch[1]
