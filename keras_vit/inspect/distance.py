"""Mean attention distance: the paper's figure 7, right, and appendix D.7.

B batch, K heads, N tokens, h w patch grid.
"""

import numpy as np
from keras import ops

from keras_vit.inspect.batches import in_batches


def mean_attention_distance(attention, grid, patch_size, prefix_tokens=1) -> np.ndarray:
    """Mean distance in pixels between a patch and the patches that it attends to, for each layer and head.

    As computed by the paper's author (google-research/vision_transformer, issue 162): the rows and columns of tokens
    that are not patches are dropped without renormalizing, so a head that attends only to the class token has
    distance 0. Euclidean distances are weighted by attention, summed over keys, averaged over queries and images.

    Args:
        attention: (B, depth, K, N, N) with rows that sum to 1.
        grid: (h, w).
        patch_size: Pixels between neighboring patches, or (vertical, horizontal) pixels.
        prefix_tokens: Number of tokens before the patches.

    Returns:
        (depth, K) float64, pixels.

    Raises:
        ValueError: N is not `prefix_tokens` + h * w.
    """
    attention = np.asarray(attention, "float64")
    if attention.ndim != 5 or attention.shape[-1] != prefix_tokens + np.prod(grid):
        raise ValueError(
            f"`attention` must have shape (B, depth, K, N, N) with N = {prefix_tokens} + {grid[0]} * {grid[1]}. "
            f"Received: {attention.shape}"
        )
    positions = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1).reshape(-1, 2)  # (h*w, 2)
    offsets = (positions[:, None] - positions[None]) * np.broadcast_to(patch_size, 2)  # (h*w, h*w, 2)
    distances = np.sqrt(np.square(offsets).sum(axis=-1))  # (h*w, h*w)
    patches = attention[..., prefix_tokens:, prefix_tokens:]  # (B, depth, K, h*w, h*w)
    return np.einsum("blkij,ij->lk", patches, distances) / (len(attention) * len(positions))


def attention_distance(model, images, batch_size: int = 16) -> np.ndarray:
    """`mean_attention_distance` of a model over images; the paper used 128 images of 224 pixels.

    Args:
        model: A `VisionTransformer`. For a hybrid, a patch is the part of the image of one token.
        images: (n, H, W, 3) float, as the model takes them.
        batch_size: Number of images at a time; each needs memory for depth * K * N * N numbers.

    Returns:
        (depth, K) float64, pixels.
    """
    side = [pixels / patches for pixels, patches in zip(model.image_size, model.grid)]
    total = np.zeros(())
    for batch in in_batches(images, batch_size):
        attention = ops.convert_to_numpy(ops.cast(model.attention_maps(batch), "float32"))
        total = total + len(batch) * mean_attention_distance(attention, model.grid, side, model.prefix_tokens)
    return total / len(images)
