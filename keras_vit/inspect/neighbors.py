"""Nearest neighbors in the space of features. n m images, D width of the features."""

import numpy as np


def nearest_neighbors(queries, features, num_neighbors: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """The most similar features by cosine similarity.

    Args:
        queries: (n, D), such as from `model.features`.
        features: (m, D) to search.
        num_neighbors: At most m.

    Returns:
        Indices into `features` (n, num_neighbors), the most similar first, and cosine similarities (n, num_neighbors)
        float64.

    Raises:
        ValueError: The widths differ, or `num_neighbors` is out of range.
    """
    queries, features = (np.asarray(one, "float64") for one in (queries, features))
    if queries.ndim != 2 or features.ndim != 2 or queries.shape[1] != features.shape[1]:
        raise ValueError(f"Expected shapes (n, D) and (m, D). Received: {queries.shape}, {features.shape}")
    if not 1 <= num_neighbors <= len(features):
        raise ValueError(f"`num_neighbors` must be between 1 and {len(features)}. Received: {num_neighbors}")
    queries, features = (x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-12) for x in (queries, features))
    cosines = queries @ features.T  # (n, m)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :num_neighbors]
    return order, np.take_along_axis(cosines, order, axis=1)
