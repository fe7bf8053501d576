"""Attention by a GPU's fused kernel (cuDNN), for Keras on JAX. B batch, N tokens, K heads, d head width.

The kernel never stores the attention weights ("FlashAttention", arXiv 2205.14135). It exists for half precision only.
Keras's `flash_attention` is not used on TPUs: there Keras 3.15 applies a causal mask when none is given.
"""

import keras
from keras import ops


def can_fuse(query) -> bool:
    """Whether the fused kernel takes these queries, (B, K, N, d): on JAX with a GPU, bfloat16 or float16."""
    half_precision = keras.backend.standardize_dtype(query.dtype) in ("bfloat16", "float16")
    return half_precision and query.shape[-1] % 8 == 0 and query.shape[-1] <= 128 and jax_has_gpu()


def jax_has_gpu() -> bool:
    """Whether Keras's backend is JAX and its first device a GPU."""
    return keras.backend.backend() == "jax" and keras.distribution.list_devices()[0].startswith("gpu")


def fused_attention(query, key, value, training=None):
    """softmax(q k^T / sqrt(d)) v: three times (B, K, N, d) -> (B, K, N, d)."""
    length = query.shape[2]
    parts = [ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)]  # (B, N, K, d)
    mask = None
    if training and length % 2:  # JAX has no gradient of the kernel for an odd number of tokens
        parts = [ops.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in parts]  # (B, N + 1, K, d)
        mask = ops.broadcast_to(ops.arange(length + 1) < length, (1, 1, length + 1, length + 1))
    mixed = ops.dot_product_attention(*parts, mask=mask)[:, :length]  # (B, N, K, d)
    return ops.transpose(mixed, (0, 2, 1, 3))  # (B, K, N, d)
