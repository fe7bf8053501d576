"""Weights in 8 bits, for pages that carry many of them. N of a row."""

import numpy as np


def to_eight_bits(weights) -> tuple[np.ndarray, np.ndarray]:
    """Rounds each row to 255 equal steps from 0 to its largest value: weights = levels * steps, to half a step.

    A row of attention sums to 1, so that steps common to all rows would leave little of those that look everywhere.

    Args:
        weights: (..., N), finite and not negative.

    Returns:
        Levels (..., N) uint8 and steps (...,) float32; a row of zeros has the step 0.

    Raises:
        ValueError: A weight is negative, infinite or NaN.
    """
    weights = np.asarray(weights, "float32")
    if not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        raise ValueError(
            "Expected finite weights of at least 0. Received: weights "
            f"from {weights.min(initial=0)} to {weights.max(initial=0)}"
        )
    steps = weights.max(axis=-1) / np.float32(255)  # (...)
    levels = np.rint(weights / np.where(steps, steps, 1)[..., None])  # (..., N)
    return np.minimum(levels, 255).astype("uint8"), steps
