"""Filters of the patch embedding: the paper's figure 7, left. P Q sides of a patch, D width."""

import numpy as np
from keras import ops


def filter_components(model, num_components: int = 28) -> np.ndarray:
    """The first principal components of the D filters of the patch embedding, as RGB patches.

    The sign of a component is arbitrary: here its value of largest magnitude is positive.

    Args:
        model: A `VisionTransformer` that is not a hybrid.
        num_components: At most min(D, P * Q * 3).

    Returns:
        (num_components, P, Q, 3) float64, orthonormal, in descending order of variance.

    Raises:
        ValueError: The model is a hybrid, or `num_components` is out of range.
    """
    if model.backbone is not None:
        raise ValueError(f"{model.name} is a hybrid: its patches hold features of a ResNet, not colors.")
    kernel = ops.convert_to_numpy(ops.cast(model.patch_embedding.projection.kernel, "float32"))  # (P, Q, 3, D)
    filters = kernel.reshape(-1, kernel.shape[-1]).T.astype("float64")  # (D, P*Q*3)
    if not 1 <= num_components <= min(filters.shape):
        raise ValueError(f"`num_components` must be between 1 and {min(filters.shape)}. Received: {num_components}")
    _, _, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    components = components[:num_components]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)  # (num_components, 1)
    return (components * np.sign(largest)).reshape(num_components, *kernel.shape[:-1])
