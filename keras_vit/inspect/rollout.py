"""Attention rollout: how much each patch contributes to a prediction.

B batch, H W pixels, h w patch grid, K heads, N tokens.
"""

import keras
import numpy as np
from keras import ops


def rollout(attention, prefix_tokens: int = 1, pools_patches: bool = False):
    """Multiplies attention through the layers ("Quantifying Attention Flow in Transformers", arXiv 2005.00928).

    As described by the ViT paper's author (appendix D.8; google-research/vision_transformer, issue 18): the heads are
    averaged, the identity is added for the residual connection, rows are normalized, and the matrices are multiplied.

    Args:
        attention: (B, depth, K, N, N), NumPy array or tensor; rows sum to 1.
        prefix_tokens: Number of tokens before the patches, the class token first if there is one.
        pools_patches: Whether the model pools the patches. If so, or without prefix tokens, the mean of their rows is
            used instead of the class token's row.

    Returns:
        (B, N - prefix_tokens) tensor of the dtype of `attention`: the contribution of each patch, with a maximum of 1
        for each image.
    """
    attention = ops.mean(attention, axis=2)  # (B, depth, N, N)
    attention = attention + ops.eye(attention.shape[-1], dtype=keras.backend.standardize_dtype(attention.dtype))
    attention = attention / ops.sum(attention, axis=-1, keepdims=True)
    joint = attention[:, 0]  # (B, N, N)
    for layer in range(1, attention.shape[1]):
        joint = ops.matmul(attention[:, layer], joint)  # (B, N, N)
    return patch_contributions(joint, prefix_tokens, pools_patches)


def patch_contributions(joint, prefix_tokens: int, pools_patches: bool):
    """(B, N, N), the contributions to token i in row i, -> (B, N - prefix_tokens) in [0, 1]."""
    pools_patches = pools_patches or not prefix_tokens
    rows = ops.mean(joint[:, prefix_tokens:], axis=1) if pools_patches else joint[:, 0]  # (B, N)
    patches = rows[:, prefix_tokens:]
    return patches / ops.maximum(ops.max(patches, axis=-1, keepdims=True), 1e-30)


def attention_rollout(model, images) -> np.ndarray:
    """Attention rollout of a VisionTransformer over images.

    Args:
        model: A `VisionTransformer`.
        images: (B, H, W, 3) float, as the model takes them.

    Returns:
        (B, H, W) float32 in [0, 1], bilinearly resized from the patch grid.
    """
    attention = ops.convert_to_numpy(ops.cast(model.attention_maps(images), "float32")).astype("float64")
    patches = rollout(attention, model.prefix_tokens, pools_patches(model))
    return ops.convert_to_numpy(resize_to_images(patches, model))


def pools_patches(model) -> bool:
    """Whether the head of a model takes pooled patches, and not a class token."""
    return model.config.pooling in ("gap", "map") or not model.config.class_token


def resize_to_images(patches, model):
    """Values of the patches, (B, h*w), bilinearly resized to the model's images: (B, H, W) float32 tensor."""
    grid = ops.reshape(ops.cast(patches, "float32"), (-1, *model.grid, 1))  # (B, h, w, 1)
    return ops.image.resize(grid, model.image_size, data_format="channels_last")[..., 0]
