"""Whether pixels are in the range that a model or its preprocessing expects. B batch, H W pixels."""

import math
import os
import warnings
from numbers import Integral

import numpy as np

DEEPEST = 65535  # of 16 bits
OVERSHOOT = 128  # of float pixels beyond [0, 255]
SCALED_OVERSHOOT = 1.25  # of scaled pixels, as a factor of their range, which is the same after bicubic interpolation
# Scaled pixels, augmented images and noise are within this factor of their range; pixels in [0, 255] are far beyond.
UNSCALED = 8.0
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# OpenAI's CLIP, and most models that were trained after it.
CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
ARGUMENT = 'preprocessing="imagenet", "clip", "half" or a dict'
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
PIXELS = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}  # in [0, 255], as they are


def checked_range(pixel_range) -> tuple[int, int]:
    """(low, high) of 16-bit pixels; raises ValueError unless 0 <= low < high <= 65535, as integers."""
    values = tuple(pixel_range) if isinstance(pixel_range, (tuple, list)) else ()
    is_pair = len(values) == 2 and all(isinstance(v, Integral) and not isinstance(v, bool) for v in values)
    if not is_pair or not 0 <= values[0] < values[1] <= DEEPEST:
        raise ValueError(f"Expected two integers, low and high, with 0 <= low < high <= {DEEPEST}.")
    return int(values[0]), int(values[1])


def window(values, pixel_range: tuple[int, int], clip):
    """Integers of 32 bits, any shape, from (low, high) to 0 to 255, rounded; `clip(values, low, high)`."""
    low, high = pixel_range
    return (510 * (clip(values, low, high) - low) + (high - low)) // (2 * (high - low))


class PixelRangeWarning(UserWarning):
    """The range of pixels was assumed: nothing states the mean and standard deviation of these weights."""


def scaled(pixels, preprocessing):
    """Pixels in [0, 255], (..., 3), scaled as a `Preprocessing` says: (pixel / 255 - mean) / std."""
    mean, std = (255.0 * np.array(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    return (pixels - mean) / std


def scaled_range(mean, std) -> tuple[float, float]:
    """The least and the largest value of pixels after (pixel / 255 - mean) / std, over the channels."""
    mean, std = np.array(mean), np.array(std)
    return float(((0 - mean) / std).min()), float(((1 - mean) / std).max())


def expected_range(preprocessing) -> str:
    """Words for the pixels that a model takes, such as "between -1 and 1, scaled by mean=(...) and std=(...)"."""
    low, high = scaled_range(preprocessing.mean, preprocessing.std)
    assumed = " (assumed)" if preprocessing.origin == "assumed" else ""
    return f"between {low:.3g} and {high:.3g}, scaled by {scaling(preprocessing)}{assumed}"


def scaling(preprocessing) -> str:
    """Words for mean and standard deviation."""
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (preprocessing.mean, preprocessing.std))
    return f"mean=({mean}) and std=({std})"


def warn_if_assumed(weights, preprocessing):
    """Warns if nobody stated mean and standard deviation of the pixels of these weights."""
    if preprocessing.origin == "assumed":
        is_path = isinstance(weights, str | os.PathLike)
        name = os.path.basename(os.fspath(weights)) or weights if is_path else f"The {type(weights).__name__}"
        warnings.warn(
            f"{name} does not state how its pixels are scaled. Assumed: {scaling(preprocessing)}. If you know others, "
            f"pass {ARGUMENT}.",
            PixelRangeWarning,
            stacklevel=3,
        )


def check_unscaled(images, mean, std):
    """Raises a ValueError unless images are pixels in [0, 255].

    Images in [0, 1] would become almost black, others almost white, without any error.

    Args:
        images: List of (H, W, 3) or (B, H, W, 3).
        mean, std: With which they will be scaled; images that were scaled with these already are noticed.
    """
    scaled_low, scaled_high = (SCALED_OVERSHOOT * value for value in scaled_range(mean, std))
    negative_low, negative_high = (scaled_low, scaled_high) if scaled_high < OVERSHOOT / UNSCALED else (0.0, 0.0)
    for array in map(_unscaled_values, images):
        if array is None:
            continue
        pixels = array.reshape(-1, math.prod(array.shape[-3:]))  # (B, H W 3)
        low, high, is_float = pixels.min(axis=1), pixels.max(axis=1), array.dtype.kind not in "iu"
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("Expected pixels in [0, 255]. Received: values that are not finite. Replace or drop them.")
        margin = OVERSHOOT if is_float else 0
        if low.min() < -margin or high.max() > 255 + margin:
            raise ValueError(
                f"Expected pixels in [0, 255]. Received: {array.dtype} between {low.min():.6g} and {high.max():.6g}. "
                "Scale them, or state the range of 16-bit images, preprocessing={'pixel_range': (low, high)}; // 256 "
                "leaves their upper 8 bits."
            )
        # All zeros may be a black image.
        in_unit = (high <= 1.0) & ((low != 0.0) | (high != 0.0))
        scaled = in_unit | ((low < 0.0) & (low >= negative_low) & (high <= negative_high))
        if is_float and scaled.any():
            least, largest = low[scaled][0], high[scaled][0]
            raise ValueError(
                f"Expected pixels in [0, 255]. Received: floats between {least:.3g} and {largest:.3g}, which look "
                "preprocessed already. Pass them to the model directly, or multiply images in [0, 1] by 255."
            )


def _unscaled_values(image):
    """The pixels as integers or float32; None for 8 bits, and for a symbolic tensor, which has no values yet."""
    if getattr(image.dtype, "name", str(image.dtype)) in ("uint8", "bool"):
        return None
    try:
        array = np.asarray(image)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):  # of TensorFlow, OpenVINO, JAX and Keras
        return None
    if array.dtype == object:
        return None
    return array if array.dtype.kind in "iu" else array.astype("float32", copy=False)  # also bfloat16
