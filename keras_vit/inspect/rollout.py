"""Attention rollout: how much each patch contributes to a prediction.

B batch, H W pixels, h w patch grid, K heads, N tokens.
"""

import keras
import numpy as np
from keras import ops


def rollout(attention, prefix_tokens: int = 1, patch_share: float = 0.0):
    """Multiplies attention through the layers ("Quantifying Attention Flow in Transformers", arXiv 2005.00928).

    As described by the ViT paper's author (appendix D.8; google-research/vision_transformer, issue 18): the heads are
    averaged, the identity is added for the residual connection, rows are normalized, and the matrices are multiplied.

    Args:
        attention: (B, depth, K, N, N), NumPy array or tensor; rows sum to 1.
        prefix_tokens: Number of tokens before the patches, the class token first if there is one.
        patch_share: Share of the head's input that is pooled from the patches, in [0, 1]: the mean of their rows has
            this weight, the class token's row the rest. Without prefix tokens it is 1. See `patch_share`.

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
    return patch_contributions(joint, prefix_tokens, patch_share)


def patch_contributions(joint, prefix_tokens: int, patch_share: float):
    """(B, N, N), the contributions to token i in row i, -> (B, N - prefix_tokens) in [0, 1]."""
    share = patch_share if prefix_tokens else 1.0
    rows = share * ops.mean(joint[:, prefix_tokens:], axis=1) + (1 - share) * joint[:, 0]  # (B, N)
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
    patches = rollout(attention, model.prefix_tokens, patch_share(model))
    return ops.convert_to_numpy(resize_to_images(patches, model))


def patch_share(model) -> float:
    """Share of the head's input that is pooled from the patches: 0 for a class token, 1 for a mean, 0.5 for both."""
    if model.config.pooling == "token_and_gap":
        return 0.5
    return float(model.config.pooling in ("gap", "map") or not model.config.class_token)


def resize_to_images(patches, model):
    """Values of the patches, (B, h*w), bilinearly resized to the model's images: (B, H, W) float32 tensor."""
    grid = ops.reshape(ops.cast(patches, "float32"), (-1, *model.grid, 1))  # (B, h, w, 1)
    return ops.image.resize(grid, model.image_size, data_format="channels_last")[..., 0]
