"""What a model learned about position: the paper's figure 7, centre. h w patch grid, N tokens, D width."""

import numpy as np
from keras import ops


def position_similarity(model):
    """Cosine similarity of each patch's position embedding to all others.

    Returns:
        (h, w, h, w) float64 NumPy array in [-1, 1]; [i, j] is the map of the patch in row i, column j.
    """
    table = ops.convert_to_numpy(model.positions.table).astype("float64")[0, model.prefix_tokens :]  # (h*w, D)
    table /= np.linalg.norm(table, axis=-1, keepdims=True) + 1e-12
    return (table @ table.T).reshape(*model.grid, *model.grid)
