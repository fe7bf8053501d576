"""The forward pass of our models, rewritten for TFLite converters, quantizers and delegates.

B images, N tokens, D width, K heads, d width of a head. Static shapes, at most four axes, and only operations that
XNNPACK, GPU delegates and quantizers support. The results equal the model's up to rounding.
"""

from functools import partial

import numpy as np
import tensorflow as tf

from keras_vit.export.names import ATTENTION_PROJECTIONS, EMBEDDING, VALUES
from keras_vit.export.tflite.arithmetic import INTEGERS, add_with_error, current_arithmetic, layer_norm, softmax_times
from keras_vit.layers import EncoderBlock
from keras_vit.layers.pooling import AttentionPooling, TokenPooling
from keras_vit.models import VisionTransformer

_FORWARD = ("call", "features", "embed", "add_tokens", "encode", "apply_blocks", "pool", "both_heads")


def is_rewritten(model) -> bool:
    """Whether the forward pass is that of `VisionTransformer`; that of a subclass runs as Keras runs it."""
    return isinstance(model, VisionTransformer) and all(
        getattr(type(model), name) is getattr(VisionTransformer, name) for name in _FORWARD
    )


def encoder_blocks(model) -> list:
    """The `EncoderBlock`s of a model; empty for a BiT, an axial model or a forward pass of a user's own."""
    return [block for block in model.encoder.blocks if type(block) is EncoderBlock] if is_rewritten(model) else []


def encode(model, images, *, read: int | None = None, norm_outputs=None):
    """Runs embedding and encoder blocks.

    Args:
        model: A `folded_copy`, rotated or not.
        images: (B, H, W, 3) after `normalize`; in [0, 255] if the model has `takes_pixels`, see `fold_pixels`.
        read: Number of first tokens that the last block computes, from `tokens_read`; None for all.
        norm_outputs: List to which the outputs of the blocks' layer normalizations are appended, (B, N, D) each.

    Returns:
        Tokens of the last block before the final normalization, (B, N, D), and the attention weights of all blocks,
        (B, K, N, N) each; with `read` the last are (B, read, D) and (B, K, read, N).
    """
    norm_outputs = [] if norm_outputs is None else norm_outputs
    weights: list = []
    error: list = []  # see `add_with_error`

    def apply(block, tokens):
        count = read if block is model.encoder.blocks[-1] else None
        with tf.name_scope(block.name):  # converters name the operations after it
            if type(block) is EncoderBlock:
                return _block(block, tokens, weights, norm_outputs, error, count)
            return block(tokens)

    embeddings = model.embed(images)
    with tf.name_scope(EMBEDDING):
        if hasattr(model, "added_tokens"):  # see `rotate_tokens`
            prefix = np.zeros((embeddings.shape[0], model.prefix_tokens, embeddings.shape[-1]), "float32")
            tokens = add_with_error(tf.concat([prefix, embeddings], axis=1), model.added_tokens, error)
        else:
            tokens = model.add_tokens(embeddings)
    return model.apply_blocks(tokens, apply), weights


def tokens_read(model) -> int | None:
    """Number of first tokens that are read after the last block; None if they are all, or if it requires all."""
    reducible = isinstance(model.pooling, TokenPooling) and type(model.encoder.blocks[-1]) is EncoderBlock
    return model.pooling.count if reducible and not model.encoder.config.relative_positions else None


def attention_ranges(model, images):
    """Smallest, largest and mean value of each channel of queries, keys and values: one array (3, 3 D) per block."""
    layers = [block.attention.qkv for block in encoder_blocks(model)]

    @tf.function
    def statistics(image):
        norm_outputs: list = []
        encode(model, normalize(image, model.preprocessing), norm_outputs=norm_outputs)
        outputs = [layer(x)[0] for layer, x in zip(layers, norm_outputs[::2])]  # (N, 3 D)
        return [
            [reduce(values, axis=0) for reduce in (tf.reduce_min, tf.reduce_max, tf.reduce_mean)] for values in outputs
        ]

    low, high, mean = np.array([statistics(tf.constant(image[None])) for image in images]).transpose(2, 0, 1, 3)
    return np.stack([low.min(axis=0), high.max(axis=0), mean.mean(axis=0)], axis=1)


def normalize(images, preprocessing):
    """(pixel / 255 - mean) / std, as `keras_vit.Preprocessing`; by scalars if all channels have the same."""
    mean, std = (tf.constant(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    if len(set(preprocessing.mean)) == len(set(preprocessing.std)) == 1:
        mean, std = mean[0], std[0]
    # In this order: TFLite's 16-bit subtraction fails where the range of the tensor is twice the constant or more.
    return (images - 255 * mean) * (1 / (255 * std))


def _block(block, tokens, weights, norm_outputs, error, count=None):
    with tf.name_scope("attention"):
        norm_outputs.append(layer_norm(block.norm_attention, tokens, error))
        attend = _self_attention if count is None else partial(_attention_of_first_tokens, count=count)
        branch = attend(block.attention, norm_outputs[-1], weights)
        if count is not None:
            tokens, *error = (token_slice(x, 0, count) for x in (tokens, *error))
        branch = branch if block.scale_attention is None else block.scale_attention(branch)
        tokens = add_with_error(tokens, branch, error)
    with tf.name_scope("mlp"):
        norm_outputs.append(layer_norm(block.norm_mlp, tokens, error))
        branch = block.mlp(norm_outputs[-1])
        return add_with_error(tokens, branch if block.scale_mlp is None else block.scale_mlp(branch), error)


def _self_attention(layer, tokens, weights):
    """`SelfAttention` with one reshape and one transpose for queries, keys and values together."""
    batch, length, width = tokens.shape
    heads, head = layer.num_heads, width // layer.num_heads
    joined = tf.reshape(layer.qkv(tokens), (batch, length, 3 * heads, head))
    joined = tf.transpose(joined, (0, 2, 1, 3))  # (B, 3 K, N, d)
    if layer.rotary is not None and layer.query_norm is None:  # queries and keys together: half the operations
        # Slices: delegates support no parts of different sizes.
        both = tf.slice(joined, (0, 0, 0, 0), (batch, 2 * heads, length, head))
        value = tf.slice(joined, (0, 2 * heads, 0, 0), (batch, heads, length, head))  # (B, K, N, d)
        query, key = tf.split(layer.rotary(both), 2, axis=1)  # (B, K, N, d)
    else:
        query, key, value = tf.split(joined, 3, axis=1)  # (B, K, N, d)
        query, key = _normalized_and_rotated(layer, query, key)
    logits = tf.matmul(query, key, transpose_b=True)  # (B, K, N, N), scaled by `folded_copy`
    if layer.relative is not None:
        logits = logits + layer.relative(query)
    return _project_mixed(layer, logits, value, weights)


def _attention_of_first_tokens(layer, tokens, weights, count):
    """`_self_attention` whose queries are the first tokens: (B, N, D) -> (B, count, D)."""
    batch, length, width = tokens.shape
    heads, head = layer.num_heads, width // layer.num_heads
    with tf.init_scope():  # constants: the converter would slice large kernels at run time
        kernel, bias = layer.qkv.kernel.numpy(), layer.qkv.bias.numpy()
    query = _projected(token_slice(tokens, 0, count), kernel[:, :width]) + bias[:width]
    query = tf.transpose(tf.reshape(query, (batch, count, heads, head)), (0, 2, 1, 3))  # (B, K, count, d)
    joined = tf.reshape(_projected(tokens, kernel[:, width:]) + bias[width:], (batch, length, 2 * heads, head))
    key, value = tf.split(tf.transpose(joined, (0, 2, 1, 3)), 2, axis=1)  # (B, K, N, d)
    query, key = _normalized_and_rotated(layer, query, key, count)
    return _project_mixed(layer, tf.matmul(query, key, transpose_b=True), value, weights)


def _normalized_and_rotated(layer, query, key, count=None):
    if layer.query_norm is not None:
        query, key = layer_norm(layer.query_norm, query), layer_norm(layer.key_norm, key)
    return (query, key) if layer.rotary is None else (layer.rotary(query, read=count), layer.rotary(key))


def _project_mixed(layer, logits, value, weights):
    """softmax(logits) value, heads merged and projected: (B, K, n, N), (B, K, N, d) -> (B, n, D)."""
    weights.append(tf.nn.softmax(logits))
    with tf.name_scope(VALUES):
        integers = current_arithmetic() == INTEGERS
        mixed = softmax_times(logits, value) if integers else tf.matmul(weights[-1], value)
    mixed = tf.transpose(mixed, (0, 2, 1, 3))  # (B, n, K, d)
    # The converter drops an axis of the Dense layer itself, and GPU delegates add tensors of equal rank only.
    return _projected(tf.reshape(mixed, (*mixed.shape[:2], -1)), layer.out.kernel) + layer.out.bias


_projected = partial(tf.matmul, name=ATTENTION_PROJECTIONS)


def pool(model, tokens):
    """Normalizes and pools the tokens of the last block as the model does: (B, N, D) -> (B, D)."""
    norm = partial(layer_norm, model.encoder.norm) if model.encoder.norm else (lambda x: x)
    if isinstance(model.pooling, TokenPooling):
        # Only the tokens that are read are normalized. Delegates support a slice, but not indexing.
        read = norm(token_slice(tokens, 0, model.pooling.count))  # (B, count, D)
        return tf.reshape(read, (read.shape[0], -1)) if model.pooling.count == 1 else tf.reduce_mean(read, axis=1)
    if isinstance(model.pooling, AttentionPooling):
        return _attention_pooling(model.pooling, norm(tokens))
    return model.pooling(norm(tokens))


def _attention_pooling(pooling, tokens):
    """`AttentionPooling` with its constant query multiplied into the kernel of the keys.

    The keys' bias adds the same to the logits of all tokens, which the softmax cancels.
    """
    if pooling.prefix_tokens:
        tokens = token_slice(tokens, pooling.prefix_tokens, tokens.shape[1] - pooling.prefix_tokens)
    batch, length, width = tokens.shape
    heads, head = pooling.num_heads, width // pooling.num_heads
    with tf.init_scope():  # computed once, outside the graph
        query = tf.reshape(pooling.query(pooling.probe), (heads, head)) / head**0.5
        kernel = tf.reduce_sum(tf.reshape(pooling.key.kernel, (width, heads, head)) * query, axis=-1)  # (D, K)
    logits = tf.transpose(tf.matmul(tokens, kernel.numpy()), (0, 2, 1))  # (B, K, N)
    weights = tf.reshape(tf.nn.softmax(logits), (batch, heads, 1, length))
    value = tf.transpose(tf.reshape(pooling.value(tokens), (batch, length, heads, head)), (0, 2, 1, 3))  # (B, K, N, d)
    with tf.name_scope(VALUES):
        mixed = tf.matmul(weights, value)
    mixed = tf.reshape(mixed, (batch, 1, width))
    pooled = pooling.out(mixed)
    return tf.reshape(pooled + pooling.mlp(layer_norm(pooling.norm, pooled)), (batch, width))


def token_slice(tokens, start, count):
    """`count` tokens from `start` on: (B, N, D) -> (B, count, D)."""
    return tf.slice(tokens, (0, start, 0), (tokens.shape[0], count, tokens.shape[-1]))
