"""Similarity of the representations of layers: linear CKA. n images, D E widths, N tokens."""

import numpy as np
from keras import ops

from keras_vit.inspect.batches import in_batches


def linear_cka(x, y) -> float:
    """Linear centered kernel alignment ("Similarity of Neural Network Representations Revisited", arXiv 1905.00414).

    Args:
        x, y: Features (n, D) and (n, E) of the same n images.

    Returns:
        In [0, 1]; 1 for representations that differ by rotation and scale only.

    Raises:
        ValueError: The numbers of images differ or are less than 2.
    """
    x, y = (np.asarray(one, "float64") for one in (x, y))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 2:
        raise ValueError(f"Expected shapes (n, D) and (n, E) with n of at least 2. Received: {x.shape}, {y.shape}")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    kernels = [features @ features.T for features in (x, y)]  # (n, n): cheaper than (D, E) for few images
    norm = np.linalg.norm(kernels[0]) * np.linalg.norm(kernels[1])
    return float(np.sum(kernels[0] * kernels[1]) / norm) if norm else 0.0


def layer_features(model, images, batch_size: int = 16) -> list[np.ndarray]:
    """The mean token after each block: `depth` arrays (n, D) float32. The final normalization is not applied."""
    batches: list[list[np.ndarray]] = []
    for batch in in_batches(images, batch_size):
        batches.append([])

        def run(block, tokens, features=batches[-1]):
            tokens = block(tokens)  # (B, N, D)
            features.append(ops.convert_to_numpy(ops.cast(ops.mean(tokens, axis=1), "float32")))
            return tokens

        model.apply_blocks(model.add_tokens(model.embed(batch)), run)
    return [np.concatenate(layer) for layer in zip(*batches)]


def layer_similarity(features, others=None) -> np.ndarray:
    """`linear_cka` of each pair of layers.

    Args:
        features: List of (n, D), see `layer_features`: the rows of the matrix.
        others: The same of another model for the same images: the columns; by default `features`.

    Returns:
        Matrix in [0, 1], with one row per array of `features` and one column per array of `others`.
    """
    others = features if others is None else others
    return np.array([[linear_cka(x, y) for y in others] for x in features])
