"""Attention for steps that XLA compiles: the weights are not stored. B batch, N tokens, D width, K heads, d = D / K.

The attention weights, (B, K, N, N), would be the largest tensors that a training step stores: a third of its memory.
The backward pass recomputes them from queries, keys and the logarithm of the softmax's denominators ("Self-attention
Does Not Need O(n^2) Memory", arXiv 2112.05682; the gradient as in "FlashAttention", arXiv 2205.14135, section 3.1). The
forms of the products are those that the TPU's compiler handles best, see docs/tpu_memory.md.
"""

import keras
from keras import ops, tree

from keras_vit.keras_internals import compiled_by_xla, is_quantized
from keras_vit.layers.heads import merge_heads
from keras_vit.layers.tokens import take_tokens
from keras_vit.layers.xla.recompute import custom_gradient, separate_from_forward

# More queries than this attend in chunks, so that the weights of all of them never exist at once.
MAX_QUERIES = 1536
CHUNK_SIZE = 512


def can_omit_weights(layer, training) -> bool:
    """Whether the weights of a `SelfAttention` need not be stored: XLA compiles it, and no dropout acts on them."""
    quantized = is_quantized(layer.qkv) or is_quantized(layer.out)
    has_dropout = training and layer.dropout.rate
    return compiled_by_xla() and layer.relative is None and not quantized and not has_dropout


def attend_without_weights(layer, tokens, read=None):
    """The output of a `SelfAttention` for which `can_omit_weights` holds: (B, N, D) -> (B, N, D).

    With `read`, see `take_tokens`, it is (B, M, D).
    """
    arguments = tokens, layer.qkv.kernel, layer.qkv.bias, layer.num_heads
    projected = project_heads(*arguments) if read is None else project_heads_of(take_tokens(tokens, read), *arguments)
    query, key, value = projected
    query, key = layer.normalize_and_rotate(query, key, read)  # (B, K, N, d)
    return project_output(layer.out, attend(query, key, value))  # (B, N, D)


def project_heads(tokens, kernel, bias, num_heads: int):
    """Queries, keys and values, each (B, K, N, d), by one kernel.

    Forward there are three products, because the split of one would be copied; backward one for each gradient.

    Args:
        tokens: (B, N, D).
        kernel, bias: (D, 3D) and (3D,): for queries, keys, values, in this order.
        num_heads: Number of heads, K.
    """

    @custom_gradient
    def project(tokens, kernel, bias):
        def gradient(*upstream):
            parts = tree.flatten(upstream)  # JAX passes one tuple
            joined = ops.concatenate([merge_heads(part) for part in parts], axis=-1)  # (B, N, 3D)
            for_tokens = ops.einsum("bne,de->bnd", joined, kernel)
            for_kernel = ops.einsum("bnd,bne->de", tokens, joined)
            return for_tokens, for_kernel, ops.sum(joined, axis=(0, 1))

        return _project([tokens] * 3, kernel, bias, num_heads), gradient

    return project(tokens, ops.cast(kernel, tokens.dtype), ops.cast(bias, tokens.dtype))


def project_heads_of(queries, tokens, kernel, bias, num_heads: int):
    """As `project_heads`, with the queries of other tokens: (B, M, D) -> (B, K, M, d)."""
    kernel, bias = (ops.cast(x, tokens.dtype) for x in (kernel, bias))
    return _project((queries, tokens, tokens), kernel, bias, num_heads)


def _project(inputs, kernel, bias, num_heads):
    width = kernel.shape[0]
    kernels = ops.reshape(kernel, (width, 3, num_heads, width // num_heads))
    biases = ops.reshape(bias, (3, num_heads, 1, width // num_heads))
    return tuple(ops.einsum("bnd,dkh->bknh", x, kernels[:, i]) + biases[i] for i, x in enumerate(inputs))


def attend(query, key, value):
    """softmax(q k^T / sqrt(d)) v: three times (B, K, N, d) -> (B, K, N, d). The softmax is in at least float32.

    More than 1,536 tokens attend in chunks of about 512 queries in sequence: memory then grows with N, not N squared.
    """
    length = query.shape[2]
    chunks = 1 if length <= MAX_QUERIES else -(-length // CHUNK_SIZE)

    @custom_gradient
    def run(query, key, value):
        mixed, log_sums = _forward_in_chunks(query, key, value, chunks)

        def gradient(upstream):
            precise = log_sums.dtype
            slopes = ops.sum(ops.cast(upstream, precise) * ops.cast(mixed, precise), axis=-1, keepdims=True)
            # `slopes` exists only in the backward pass: nothing that waits for it is merged with the forward pass.
            stored, slopes = separate_from_forward((query, key, value, log_sums), slopes)
            queries, keys, values, sums = stored
            return _backward_in_chunks(queries, keys, values, upstream, sums, slopes, chunks)

        return mixed, gradient

    return run(query * query.shape[-1] ** -0.5, key, value)


def project_output(layer, mixed):
    """layer(merged heads) of a `keras.layers.Dense`: (B, K, N, d) -> (B, N, E)."""
    num_heads, head = mixed.shape[1], mixed.shape[3]
    kernel = ops.reshape(ops.cast(layer.kernel, mixed.dtype), (num_heads, head, -1))
    return ops.einsum("bknh,khe->bne", mixed, kernel) + ops.cast(layer.bias, mixed.dtype)


def _forward(query, key, value):
    """The output (B, K, n, d) for scaled queries (B, K, n, d), and the log of the softmax's sums, (B, K, n, 1)."""
    logits = _logits(query, key)
    maximum = ops.max(logits, axis=-1, keepdims=True)
    weights = ops.exp(logits - maximum)
    total = ops.sum(weights, axis=-1, keepdims=True)
    mixed = ops.einsum("bknm,bkmh->bknh", ops.cast(weights / total, value.dtype), value)
    return mixed, maximum + ops.log(total)


def _backward(query, key, value, upstream, log_sums, slopes):
    """The gradients of `_forward` for queries, keys and values."""
    weights = ops.exp(_logits(query, key) - log_sums)
    for_value = ops.einsum("bknm,bknh->bkmh", ops.cast(weights, value.dtype), upstream)
    for_logits = ops.cast(weights * (_logits(upstream, value) - slopes), query.dtype)
    for_query = ops.einsum("bknm,bkmh->bknh", for_logits, key)
    return for_query, ops.einsum("bknm,bknh->bkmh", for_logits, query), for_value


def _logits(query, key):
    logits = ops.einsum("bknh,bkmh->bknm", query, key)
    return ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))


def _forward_in_chunks(query, key, value, chunks):
    """`_forward` for one chunk of the queries at a time."""
    if chunks == 1:
        return _forward(query, key, value)
    parts = _split(query, chunks)

    def step(i, state):
        return [_set_chunk(stack, i, one) for stack, one in zip(state, _forward(parts[i], key, value))]

    precise = keras.backend.result_type(query.dtype, "float32")
    stacks = [ops.zeros_like(parts), ops.zeros_like(parts[..., :1], dtype=precise)]
    return [_join(stack, query.shape[2]) for stack in ops.fori_loop(0, chunks, step, stacks)]


def _backward_in_chunks(query, key, value, upstream, log_sums, slopes, chunks):
    """`_backward` for one chunk of the queries at a time; sums over chunks are in at least float32."""
    if chunks == 1:
        return _backward(query, key, value, upstream, log_sums, slopes)
    parts, *others = (_split(x, chunks) for x in (query, upstream, log_sums, slopes))

    def step(i, state):
        for_query, for_key, for_value = _backward(parts[i], key, value, *(part[i] for part in others))
        key_sum, value_sum = (total + ops.cast(one, total.dtype) for total, one in zip(state[1:], (for_key, for_value)))
        return _set_chunk(state[0], i, for_query), key_sum, value_sum

    start = ops.zeros_like(parts), *(ops.zeros_like(x, dtype=slopes.dtype) for x in (key, value))
    stack, for_key, for_value = ops.fori_loop(0, chunks, step, start)
    return _join(stack, query.shape[2]), ops.cast(for_key, key.dtype), ops.cast(for_value, value.dtype)


def _split(x, chunks):
    """(B, K, N, c) -> (chunks, B, K, n, c); the last chunk is padded with zeros, which have no gradients."""
    size = -(-x.shape[2] // (8 * chunks)) * 8
    x = ops.pad(x, ((0, 0), (0, 0), (0, size * chunks - x.shape[2]), (0, 0)))  # (B, K, chunks * n, c)
    x = ops.reshape(x, (-1, x.shape[1], chunks, size, x.shape[3]))  # (B, K, chunks, n, c)
    return ops.transpose(x, (2, 0, 1, 3, 4))  # (chunks, B, K, n, c)


def _join(x, length):
    """(chunks, B, K, n, c) -> (B, K, N, c)."""
    chunks, _, heads, size, width = x.shape
    x = ops.transpose(x, (1, 2, 0, 3, 4))  # (B, K, chunks, n, c)
    return ops.reshape(x, (-1, heads, chunks * size, width))[:, :, :length]  # (B, K, N, c)


def _set_chunk(stack, i, one):
    """`stack` with chunk i replaced by `one`."""
    return ops.slice_update(stack, (i, *[0] * (len(stack.shape) - 1)), one[None])


def can_fuse(query) -> bool:
    """Whether a GPU's fused kernel (cuDNN) takes these queries, (B, K, N, d): on JAX, in bfloat16 or float16.

    Keras's `flash_attention` is not used on TPUs: there Keras 3.15 applies a causal mask when none is given.
    """
    half_precision = keras.backend.standardize_dtype(query.dtype) in ("bfloat16", "float16")
    return half_precision and query.shape[-1] % 8 == 0 and query.shape[-1] <= 128 and jax_has_gpu()


def jax_has_gpu() -> bool:
    """Whether Keras's backend is JAX and its first device a GPU."""
    return keras.backend.backend() == "jax" and keras.distribution.list_devices()[0].startswith("gpu")


def fused_attention(query, key, value, training=None):
    """softmax(q k^T / sqrt(d)) v by the fused kernel: three times (B, K, N, d) -> (B, K, N, d)."""
    length = query.shape[2]
    parts = [ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)]  # (B, N, K, d)
    mask = None
    if training and length % 2:  # JAX has no gradient of the kernel for an odd number of tokens
        parts = [ops.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in parts]  # (B, N + 1, K, d)
        mask = ops.broadcast_to(ops.arange(length + 1, dtype="int32") < length, (1, 1, length + 1, length + 1))
    mixed = ops.dot_product_attention(*parts, mask=mask)[:, :length]  # (B, N, K, d)
    return ops.transpose(mixed, (0, 2, 1, 3))  # (B, K, N, d)
