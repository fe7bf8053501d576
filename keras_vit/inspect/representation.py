"""How alike the layers of models see images. n images, D E widths, N tokens."""

import numpy as np
from keras import ops

from keras_vit.inspect.batches import in_batches


def linear_cka(x, y) -> float:
    """Linear centered kernel alignment ("Similarity of Neural Network Representations Revisited", arXiv 1905.00414).

    Args:
        x, y: (n, D) and (n, E), of the same n images.

    Returns:
        In [0, 1]; 1 for representations that differ by rotation and scale only.

    Raises:
        ValueError: Not of the same images, or fewer than 2.
    """
    x, y = (np.asarray(one, "float64") for one in (x, y))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 2:
        raise ValueError(f"Expected (n, D) and (n, E) of the same images, at least 2. Received: {x.shape}, {y.shape}")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    kernels = [one @ one.T for one in (x, y)]  # (n, n): cheaper than (D, E) where images are few
    norm = np.linalg.norm(kernels[0]) * np.linalg.norm(kernels[1])
    return float(np.sum(kernels[0] * kernels[1]) / norm) if norm else 0.0


def layer_features(model, images, batch_size: int = 16) -> list[np.ndarray]:
    """The mean token after each block: `depth` arrays (n, D) float32. The final normalization is not applied."""
    found: list[list[np.ndarray]] = []
    for some in in_batches(images, batch_size):
        found.append([])

        def run(block, tokens, after=found[-1]):
            tokens = block(tokens)  # (B, N, D)
            after.append(ops.convert_to_numpy(ops.cast(ops.mean(tokens, axis=1), "float32")))
            return tokens

        model.apply_blocks(model.add_tokens(model.embed(some)), run)
    return [np.concatenate(layer) for layer in zip(*found)]


def layer_similarity(features, others=None) -> np.ndarray:
    """`linear_cka` of each layer with each other: lists of (n, D), see `layer_features`, to a matrix in [0, 1].

    Args:
        features: Of a model, its rows.
        others: Of another model on the same images, the columns; by default of the same.
    """
    others = features if others is None else others
    return np.array([[linear_cka(x, y) for y in others] for x in features])
