"""Attention weights in 8 bits, for HTML reports with many of them. N row length."""

import numpy as np


def quantize_rows(weights) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes each row to multiples of 1/255 of its maximum: weights = levels * steps, with an error of half a step.

    A row of attention sums to 1: with one step for all rows, rows of uniform attention would become coarse.

    Args:
        weights: (..., N), finite and nonnegative.

    Returns:
        Levels (..., N) uint8 and steps (...,) float32; a row of zeros has step 0.

    Raises:
        ValueError: A weight is negative, infinite or NaN.
    """
    weights = np.asarray(weights, "float32")
    if not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        raise ValueError(
            "Expected finite, nonnegative weights. Received: weights "
            f"from {weights.min(initial=0)} to {weights.max(initial=0)}"
        )
    steps = weights.max(axis=-1) / np.float32(255)  # (...)
    levels = np.rint(weights / np.where(steps, steps, 1)[..., None])  # (..., N)
    return np.minimum(levels, 255).astype("uint8"), steps
