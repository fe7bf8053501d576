"""What the patch embedding looks for: the paper's figure 7, left. P Q sides of a patch, D width."""

import numpy as np
from keras import ops


def filter_components(model, count: int = 28) -> np.ndarray:
    """The first principal components of the D filters of the linear embedding, as RGB patches.

    A component's sign is arbitrary: here its value of largest size is positive.

    Args:
        model: A `VisionTransformer` whose patches are of pixels.
        count: Components, at most min(D, P * Q * 3).

    Returns:
        (count, P, Q, 3) float64, orthonormal, the one that explains most first.

    Raises:
        ValueError: The model is a hybrid, or `count` is too large.
    """
    if model.backbone is not None:
        raise ValueError(f"{model.name} is a hybrid: its patches are of features of a ResNet and have no colors.")
    kernel = ops.convert_to_numpy(ops.cast(model.patch_embedding.projection.kernel, "float32"))  # (P, Q, 3, D)
    filters = kernel.reshape(-1, kernel.shape[-1]).T.astype("float64")  # (D, P*Q*3)
    if not 1 <= count <= min(filters.shape):
        raise ValueError(f"`count` must be between 1 and {min(filters.shape)}. Received: {count}")
    _, _, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    components = components[:count]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)  # (count, 1)
    return (components * np.sign(largest)).reshape(count, *kernel.shape[:-1])
