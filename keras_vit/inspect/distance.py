"""How far attention reaches: the paper's figure 7, right, and appendix D.7.

B batch, K heads, N tokens, h w patch grid.
"""

import numpy as np
from keras import ops

from keras_vit.inspect.batches import in_batches


def mean_distance(attention, grid, patch_size, prefix_tokens=1) -> np.ndarray:
    """Mean distance in pixels between a patch and what it attends to, for each layer and head.

    As the paper's author computed it (google-research/vision_transformer, issue 162): rows and columns of tokens that
    are no patches are dropped and the rest is not normalized again, so that a head that looks at the class token only
    has distance 0; Euclidean distances on the grid times the patch's side, weighted by attention, summed over the
    patches looked at, averaged over those that look and over images.

    Args:
        attention: (B, depth, K, N, N) with rows that sum to 1.
        grid: (h, w).
        patch_size: Pixels from a patch to the next, or (vertically, horizontally).
        prefix_tokens: Tokens before the patches.

    Returns:
        (depth, K) float64, pixels.

    Raises:
        ValueError: N is not the number of patches and other tokens.
    """
    attention = np.asarray(attention, "float64")
    if attention.ndim != 5 or attention.shape[-1] != prefix_tokens + np.prod(grid):
        raise ValueError(
            f"`attention` must be (B, depth, K, N, N) with N = {prefix_tokens} + {grid[0]} * {grid[1]}. "
            f"Received: {attention.shape}"
        )
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1).reshape(-1, 2)  # (h*w, 2)
    between = (places[:, None] - places[None]) * np.broadcast_to(patch_size, 2)  # (h*w, h*w, 2)
    distances = np.sqrt(np.square(between).sum(axis=-1))  # (h*w, h*w)
    patches = attention[..., prefix_tokens:, prefix_tokens:]  # (B, depth, K, h*w, h*w)
    return np.einsum("blkij,ij->lk", patches, distances) / (len(attention) * len(places))


def attention_distance(model, images, batch_size: int = 16) -> np.ndarray:
    """`mean_distance` of a model's heads over images; the paper took 128 of 224 pixels.

    Args:
        model: A `VisionTransformer`. Of a hybrid, a patch is what a token of its grid stands for.
        images: (n, H, W, 3) float, as the model takes them.
        batch_size: Images at a time; attention takes depth * K * N * N numbers for each.

    Returns:
        (depth, K) float64, pixels.
    """
    side = [pixels / patches for pixels, patches in zip(model.image_size, model.grid)]
    total = np.zeros(())
    for some in in_batches(images, batch_size):
        attention = ops.convert_to_numpy(ops.cast(model.attention_maps(some), "float32"))
        total = total + len(some) * mean_distance(attention, model.grid, side, model.prefix_tokens)
    return total / len(images)
