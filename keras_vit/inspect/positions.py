"""What a model learned about position: the paper's figure 7, center. h w patch grid, N tokens, D width."""

import numpy as np
from keras import ops


def position_similarity(model) -> np.ndarray:
    """Cosine similarity of each patch's position embedding to all others; of several layers', those of the stem.

    Args:
        model: A `VisionTransformer` whose patches have a position embedding each, learned or of sines and cosines.

    Returns:
        (h, w, h, w) float64 in [-1, 1]; [i, j] is the map of the patch in row i, column j.

    Raises:
        ValueError: The model adds no positions to its patches.
    """
    if model.positions is None:
        kind = model.config.position_embedding
        raise ValueError(f"{model.name} has no position embeddings to compare. Received: position_embedding={kind!r}")
    # The patches come last: class token and registers need not have positions.
    patches = model.grid[0] * model.grid[1]
    table = ops.convert_to_numpy(model.positions.table).astype("float64")[0, -patches:]  # (h*w, D)
    table /= np.linalg.norm(table, axis=-1, keepdims=True) + 1e-12
    return (table @ table.T).reshape(*model.grid, *model.grid)
