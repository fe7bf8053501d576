"""Images that a model finds alike. n m images, D width of the features."""

import numpy as np


def nearest_neighbors(queries, features, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """The most similar rows by cosine.

    Args:
        queries: (n, D), such as of `model.features`.
        features: (m, D), among which to look.
        count: At most m.

    Returns:
        Indices into `features` (n, count), the most similar first, and their cosines (n, count) float64.

    Raises:
        ValueError: The widths differ, or there are fewer than `count`.
    """
    queries, features = (np.asarray(one, "float64") for one in (queries, features))
    if queries.ndim != 2 or features.ndim != 2 or queries.shape[1] != features.shape[1]:
        raise ValueError(f"Expected (n, D) and (m, D) of one model. Received: {queries.shape}, {features.shape}")
    if not 1 <= count <= len(features):
        raise ValueError(f"`count` must be between 1 and the {len(features)} images. Received: {count}")
    queries, features = (x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-12) for x in (queries, features))
    cosines = queries @ features.T  # (n, m)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(cosines, order, axis=1)
