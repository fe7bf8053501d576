"""What the answer was read from: attention rollout. B batch, H W pixels, h w patch grid, K heads, N tokens."""

import numpy as np
from keras import ops


def rollout(attention, prefix_tokens=1, reads_patches=False):
    """Multiplies attention through the layers ("Quantifying Attention Flow in Transformers", arXiv 2005.00928).

    As the ViT paper's author described it (appendix D.8; google-research/vision_transformer, issue 18): mean over
    heads, identity added for the residual connection, rows normalized, matrices multiplied, class token's row read.

    Args:
        attention: (B, depth, K, N, N) with rows that sum to 1.
        prefix_tokens: Tokens before the patches, the class token first if there is one.
        reads_patches: Whether the model pools the patches: the mean of their rows is read then, also without
            prefix_tokens.

    Returns:
        (B, N - prefix_tokens) float64 NumPy array, the share of each patch; an image's largest value is 1.
    """
    attention = np.asarray(attention, "float64").mean(axis=2)  # (B, depth, N, N)
    attention = attention + np.eye(attention.shape[-1])
    attention /= attention.sum(axis=-1, keepdims=True)
    joint = attention[:, 0]  # (B, N, N)
    for layer in range(1, attention.shape[1]):
        joint = attention[:, layer] @ joint  # (B, N, N)
    return shares(joint, prefix_tokens, reads_patches)


def shares(joint, prefix_tokens, reads_patches):
    """What the answer owes to each patch: (B, N, N), row i of token i -> (B, N - prefix_tokens), at most 1."""
    patches_only = reads_patches or not prefix_tokens
    rows = joint[:, prefix_tokens:].mean(axis=1) if patches_only else joint[:, 0]  # (B, N)
    patches = rows[:, prefix_tokens:]
    return patches / np.maximum(patches.max(axis=-1, keepdims=True), 1e-30)


def attention_rollout(model, images):
    """Attention rollout of a VisionTransformer over images, resized to them.

    Args:
        model: A `VisionTransformer`.
        images: (B, H, W, 3) float, as the model takes them.

    Returns:
        (B, H, W) float32 NumPy array in [0, 1], bilinearly resized from the patch grid.
    """
    attention = ops.convert_to_numpy(ops.cast(model.attention_maps(images), "float32"))
    return over_images(rollout(attention, model.prefix_tokens, reads_patches(model)), model)


def reads_patches(model) -> bool:
    """Whether the answer is read from the patches, and not from a class token."""
    return model.config.pooling in ("gap", "map") or not model.config.class_token


def over_images(patches, model):
    """Shares of the patches (B, h*w) resized bilinearly to the model's images, (B, H, W) float32."""
    grid = np.reshape(patches, (-1, *model.grid, 1)).astype("float32")  # (B, h, w, 1)
    resized = ops.image.resize(grid, model.image_size, data_format="channels_last")  # (B, H, W, 1)
    return ops.convert_to_numpy(resized)[..., 0]
