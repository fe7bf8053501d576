"""Similarity of position embeddings: the paper's figure 7, center. h w patch grid, D width."""

import numpy as np
from keras import ops


def position_similarity(model) -> np.ndarray:
    """Cosine similarity of each patch's position embedding to all others, in the stem.

    Args:
        model: A `VisionTransformer` with one position embedding per patch, learned or sinusoidal.

    Returns:
        (h, w, h, w) float64 in [-1, 1]; [i, j] is the map for the patch in row i, column j.

    Raises:
        ValueError: The model adds no position embeddings to its patches.
    """
    if model.positions is None:
        kind = model.config.position_embedding
        raise ValueError(f"{model.name} adds no position embeddings to its patches: position_embedding={kind!r}.")
    # The patches are last: class token and registers may have no positions.
    patches = model.grid[0] * model.grid[1]
    table = ops.convert_to_numpy(model.positions.table).astype("float64")[0, -patches:]  # (h*w, D)
    table /= np.linalg.norm(table, axis=-1, keepdims=True) + 1e-12
    return (table @ table.T).reshape(*model.grid, *model.grid)
