"""Resizes and crops images as a model's preprocessing says.

Keras is imported in functions: clients of exported files need none.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from keras_vit.images.pixel_range import check_unscaled
from keras_vit.images.rgb import as_channels


def _windowed_sinc(radius, x):
    return np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


def _cubic(x):
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0.0))


# Weights of a pixel by its distance from the center, as TensorFlow and JAX have them ("bicubic": Keys, a = -0.5).
KERNELS: dict[str, Callable] = {
    "bilinear": lambda x: np.maximum(1 - x, 0.0),
    "bicubic": _cubic,
    "lanczos3": partial(_windowed_sinc, 3),
    "lanczos5": partial(_windowed_sinc, 5),
}


def resized(images, preprocessing, by_products: bool = False):
    """Resizes and crops images, see `Preprocessing.__call__`.

    Args:
        images: One image or batch, or a list of them.
        preprocessing: A `Preprocessing`.
        by_products: Whether to resize images of a known size by matrix products: of files and NumPy arrays without
            Keras, of tensors in a graph that converts to TFLite, see `PreprocessingLayer`.

    Returns:
        (B, height, width, 3) float32 pixels in [0, 255]; a NumPy array if all images are files or arrays and
        `by_products`, else a tensor.
    """
    images = images if isinstance(images, (list, tuple)) and images else [images]
    images = [as_channels(image, preprocessing.channels, preprocessing.pixel_range) for image in images]
    check_unscaled(images, preprocessing.mean, preprocessing.std)
    batches = [image if len(image.shape) == 4 else image[None] for image in images]
    if not (by_products and all(isinstance(batch, np.ndarray) for batch in batches)):
        from keras import ops

        batches = [ops.cast(batch, "float32") for batch in batches]
    parts = [_resized_batch(batch, preprocessing, by_products) for batch in batches]
    if isinstance(parts[0], np.ndarray):
        return _clipped(np.concatenate(parts).astype("float32"))
    return _clipped(parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=0))


def _clipped(pixels):
    """Clips what bicubic and Lanczos resizing overshoots, as Pillow does."""
    if isinstance(pixels, np.ndarray):
        return pixels.clip(0.0, 255.0)
    from keras import ops

    return ops.clip(pixels, 0.0, 255.0)


def _resized_batch(pixels, preprocessing, by_products):
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
    if clips_each_axis(preprocessing) and height is not None and target[1] != width:
        pixels = _resized_to(pixels, (height, target[1]), preprocessing, by_products)
        pixels, width = _clipped(pixels), target[1]
    if target != (height, width):
        pixels = _resized_to(pixels, target, preprocessing, by_products)
    top, left = (round((new - side) / 2) for new, side in zip(target, size))
    return pixels[:, top : top + size[0], left : left + size[1]]  # (B, height, width, 3)


def _resized_to(pixels, target, preprocessing, by_products):
    """Resizes (B, H, W, 3): (B, *target, 3)."""
    sides = pixels.shape[1:3]
    if by_products and None not in sides:
        return _product(pixels, *(_weights(old, new, preprocessing) for old, new in zip(sides, target)))
    from keras import ops

    options = {"interpolation": preprocessing.interpolation, "antialias": preprocessing.antialias}
    return ops.image.resize(pixels, target, data_format="channels_last", **options)


def clips_each_axis(preprocessing) -> bool:
    """Whether a resize clips what overshoots at hard edges after the width, and again after the height, as Pillow."""
    return preprocessing.antialias and preprocessing.interpolation in ("bicubic", "lanczos3", "lanczos5")


def _weights(old: int, new: int, preprocessing) -> np.ndarray:
    """(new, old) float32: the weight of each of `old` pixels in each of `new`."""
    scale = old / new
    if preprocessing.interpolation == "nearest":
        nearest = (np.arange(new, dtype="float32") + 0.5) * np.float32(scale)  # rounded as TensorFlow does
        return (np.arange(old) == nearest.astype(int)[:, None]).astype("float32")
    stretch = max(scale, 1.0) if preprocessing.antialias else 1.0
    distance = np.arange(old) + 0.5 - (np.arange(new)[:, None] + 0.5) * scale
    weights = KERNELS[preprocessing.interpolation](np.abs(distance) / stretch)
    return (weights / weights.sum(axis=1, keepdims=True)).astype("float32")


def _area_resized(pixels, target, size):
    """Resizes (B, H, W, 3) to `target` by the mean of areas, and crops the center: (B, *size, 3)."""
    rows, columns = (
        _area_weights(old, new)[(new - side) // 2 :][:side] for old, new, side in zip(pixels.shape[1:3], target, size)
    )
    return _product(pixels, rows, columns)


def _product(pixels, rows, columns):
    """Weighted sums of pixels (B, H, W, 3), with weights (h, H) and (w, W): (B, h, w, 3)."""
    if isinstance(pixels, np.ndarray):
        used = [weights.any(axis=0) for weights in (rows, columns)]  # without antialias few of a photograph's pixels
        pixels = pixels[:, used[0]][:, :, used[1]].astype("float32")
        rows, columns = rows[:, used[0]], columns[:, used[1]]
        return np.einsum("jw,bhwc,ih->bijc", columns, pixels, rows, optimize=True)
    from keras import ops

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
