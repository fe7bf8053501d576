"""Resizes and crops images as a model's preprocessing says.

Apart from preprocessing.py, because reading a checkpoint needs its preprocessing but no Keras.
"""

import math

import numpy as np
from keras import ops

from keras_vit.pixel_range import check_unscaled
from keras_vit.rgb import as_rgb


def resized(images, preprocessing):
    """Resizes and crops images, see `Preprocessing.__call__`.

    Args:
        images: One image or batch, or a list of them.
        preprocessing: A `Preprocessing`.

    Returns:
        (B, height, width, 3) float32 pixels, which bicubic resizing moves beyond [0, 255].
    """
    images = images if isinstance(images, (list, tuple)) and images else [images]
    images = [as_rgb(image) for image in images]
    check_unscaled(images, preprocessing.mean, preprocessing.std)
    batches = [ops.cast(image if len(image.shape) == 4 else image[None], "float32") for image in images]
    parts = [_resized_batch(batch, preprocessing) for batch in batches]
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=0)


def _resized_batch(pixels, preprocessing):
    """Resizes (B, H, W, 3) and crops the center: (B, height, width, 3)."""
    size, (height, width) = preprocessing.image_size, pixels.shape[1:3]
    target = size_before_crop(size, preprocessing.crop_fraction)
    if preprocessing.resize != "squash":
        if None in (height, width):
            raise ValueError(
                f"resize={preprocessing.resize!r} requires images of a known size. Received: (height, width) = "
                f"{(height, width)}. Inside tf.data, for one image: tf.ensure_shape(tf.py_function("
                f"lambda x: preprocess(x)[0], [image], tf.float32), {(*size, 3)})."
            )
        scale = max(target[0] / height, target[1] / width)
        if preprocessing.resize == "shortest_area":
            return _area_resized(pixels, [round(side * scale) for side in (height, width)], size)
        target = tuple(max(least, int(side * scale + 1e-6)) for side, least in zip((height, width), target))
    options = {"interpolation": preprocessing.interpolation, "antialias": preprocessing.antialias}
    if clips_each_axis(preprocessing) and height is not None and target[1] != width:
        pixels = ops.image.resize(pixels, (height, target[1]), data_format="channels_last", **options)
        pixels, width = ops.clip(pixels, 0.0, 255.0), target[1]
    if target != (height, width):
        pixels = ops.image.resize(pixels, target, data_format="channels_last", **options)
    top, left = (round((new - side) / 2) for new, side in zip(target, size))
    return pixels[:, top : top + size[0], left : left + size[1]]  # (B, height, width, 3)


def clips_each_axis(preprocessing) -> bool:
    """Whether a resize clips what overshoots at hard edges after the width, and again after the height, as Pillow."""
    return preprocessing.antialias and preprocessing.interpolation in ("bicubic", "lanczos3", "lanczos5")


def _area_resized(pixels, target, size):
    """Resizes (B, H, W, 3) to `target` by the mean of areas, and crops the center: (B, *size, 3)."""
    rows, columns = (
        _area_weights(old, new)[(new - side) // 2 :][:side] for old, new, side in zip(pixels.shape[1:3], target, size)
    )
    return ops.einsum("jw,bhwc,ih->bijc", columns, pixels, rows)


def _area_weights(old: int, new: int) -> np.ndarray:
    """(new, old) float32: the fraction that each of `old` pixels has of each of `new` intervals of the same length."""
    edges, pixels = np.arange(new + 1) * (old / new), np.arange(old)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (np.maximum(overlap, 0.0) * (new / old)).astype("float32")


def size_before_crop(image_size: tuple[int, int], crop_fraction: float) -> tuple[int, int]:
    """(height, width) to resize to so that a center crop of this fraction has `image_size`."""
    # The small addend keeps 224 / 0.875 at 256 despite rounding.
    height, width = (math.floor(side / crop_fraction + 1e-6) for side in image_size)
    return height, width
