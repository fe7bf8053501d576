"""Features of trained models: similarity, nearest neighbors, filters, positions. n m images, D E widths, N tokens."""

import numpy as np
from keras import ops

from keras_vit.models.outer_model import apply, vit_inside


def linear_cka(x, y) -> float:
    """Linear centered kernel alignment ("Similarity of Neural Network Representations Revisited", arXiv 1905.00414).

    Args:
        x, y: Features (n, D) and (n, E) of the same n images.

    Returns:
        In [0, 1]; 1 for representations that differ by rotation and scale only.

    Raises:
        ValueError: The numbers of images differ or are less than 2.
    """
    x, y = (np.asarray(array, "float64") for array in (x, y))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 2:
        raise ValueError(f"Expected shapes (n, D) and (n, E) with n of at least 2. Received: {x.shape}, {y.shape}")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    kernels = [features @ features.T for features in (x, y)]  # (n, n): cheaper than (D, E) for few images
    norm = np.linalg.norm(kernels[0]) * np.linalg.norm(kernels[1])
    return float(np.sum(kernels[0] * kernels[1]) / norm) if norm else 0.0


def layer_features(model, images, batch_size: int = 16) -> list[np.ndarray]:
    """The mean token after each block: `depth` arrays (n, D) float32. The final normalization is not applied."""
    vit, before, _ = vit_inside(model)
    batches: list[list[np.ndarray]] = []
    for batch in in_batches(images, batch_size):
        batches.append([])

        def run(block, tokens, features=batches[-1]):
            tokens = block(tokens)  # (B, N, D)
            features.append(ops.convert_to_numpy(ops.cast(ops.mean(tokens, axis=1), "float32")))
            return tokens

        vit.apply_blocks(vit.add_tokens(vit.embed(apply(before, batch))), run)
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


def in_batches(images, batch_size: int):
    """Yields slices of (n, ...) of at most `batch_size`."""
    if not len(images) or batch_size < 1:
        raise ValueError(f"Expected images and a positive batch size. Received: {len(images)} images, {batch_size=}")
    for start in range(0, len(images), batch_size):
        yield images[start : start + batch_size]


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
    queries, features = (np.asarray(array, "float64") for array in (queries, features))
    if queries.ndim != 2 or features.ndim != 2 or queries.shape[1] != features.shape[1]:
        raise ValueError(f"Expected shapes (n, D) and (m, D). Received: {queries.shape}, {features.shape}")
    if not 1 <= num_neighbors <= len(features):
        raise ValueError(f"`num_neighbors` must be between 1 and {len(features)}. Received: {num_neighbors}")
    queries, features = (x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-12) for x in (queries, features))
    cosines = queries @ features.T  # (n, m)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :num_neighbors]
    return order, np.take_along_axis(cosines, order, axis=1)


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
    model = vit_inside(model).ours
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


def position_similarity(model) -> np.ndarray:
    """Cosine similarity of each patch's position embedding to all others, in the stem.

    Args:
        model: A `VisionTransformer` with one position embedding per patch, learned or sinusoidal.

    Returns:
        (h, w, h, w) float64 in [-1, 1]; [i, j] is the map for the patch in row i, column j.

    Raises:
        ValueError: The model adds no position embeddings to its patches.
    """
    model = vit_inside(model).ours
    if model.positions is None:
        kind = model.config.position_embedding
        raise ValueError(f"{model.name} adds no position embeddings to its patches: position_embedding={kind!r}.")
    # The patches are last: class token and registers may have no positions.
    patches = model.grid[0] * model.grid[1]
    table = ops.convert_to_numpy(model.positions.table).astype("float64")[0, -patches:]  # (h*w, D)
    table /= np.linalg.norm(table, axis=-1, keepdims=True) + 1e-12
    return (table @ table.T).reshape(*model.grid, *model.grid)
