"""A model's forward pass as converters and accelerators of phones like it. N tokens, D width, K heads, h w patch grid.

One image, static shapes, at most four dimensions, and operations that XNNPACK, GPU delegates and quantizers know. The
numbers are the model's own up to rounding.
"""

import numpy as np
import tensorflow as tf

from keras_vit.export.tflite.device_pooling import pooled_tokens, rows
from keras_vit.inspect.rollout import reads_patches
from keras_vit.layers import EncoderBlock
from keras_vit.weights.transfer import copy_weights

INPUT = "images"
CLASSIFY, EMBED, ATTENTION = "classify", "embed", "attention"
OUTPUTS = {CLASSIFY: "probabilities", EMBED: "embedding", ATTENTION: "attention"}


def device_copy(model):
    """The same model in float32, to be changed for export: 1 / sqrt(d) is in the weights that make the queries.

    Args:
        model: Of one size, with one vector an image, see `exportable`.

    Raises:
        ValueError: As `float32_copy`.
    """
    copy = float32_copy(model)
    for block in plain_blocks(copy):
        _scale_queries(block.attention)
    return copy


def float32_copy(model):
    """The same model with the same weights that computes in float32, whatever it was trained in.

    Raises:
        ValueError: It has weights that a new model lacks, such as those of LoRA.
    """
    copy = type(model).from_config({**model.get_config(), "dtype": "float32"})
    copy_weights(model, copy)
    return copy


def plain_blocks(model) -> list:
    """The `EncoderBlock`s of a model; none of a BiT or an axial model."""
    blocks = getattr(getattr(model, "encoder", None), "blocks", [])
    return [block for block in blocks if isinstance(block, EncoderBlock)]


def _scale_queries(attention):
    width = attention.out.kernel.shape[0]
    factor = (width // attention.num_heads) ** -0.5
    if attention.query_norm is not None:
        weights = (attention.query_norm.gamma, attention.query_norm.beta)
        for weight in weights:
            weight.assign(weight * factor)
    else:
        for weight in (attention.qkv.kernel, attention.qkv.bias):
            query, rest = np.split(weight.numpy(), [width], axis=-1)
            weight.assign(np.concatenate([query * factor, rest], axis=-1))


def signatures_of(model) -> tuple[str, ...]:
    """What can be exported of a model: "classify" needs a head, "attention" plain encoder blocks."""
    return (CLASSIFY,) * bool(model.num_classes) + (EMBED,) + (ATTENTION,) * bool(plain_blocks(model))


def device_function(model, signature: str):
    """A function of pixels, (1, H, W, 3) float32 in [0, 255], for one of `signatures_of(model)`, a `device_copy`.

    "classify" gives probabilities (1, num_classes), "embed" the features that the head sees, (1, D), "attention" the
    rollout of `keras_vit.inspect.rollout`, (1, h, w) in [0, 1].
    """
    steps = {CLASSIFY: _classify, EMBED: _embed, ATTENTION: _attention_map}

    def run(images):
        return {OUTPUTS[signature]: steps[signature](model, normalized(images, model.preprocessing))}

    return run


def normalized(pixels, preprocessing):
    """As `keras_vit.Preprocessing`: (pixel / 255 - mean) / std, a channel at a time or all alike."""
    mean, std = (tf.constant(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    if len(set(preprocessing.mean)) == len(set(preprocessing.std)) == 1:
        mean, std = mean[0], std[0]
    # In this order: TFLite's 16-bit subtraction takes no tensor whose largest value is twice the constant's.
    return (pixels - 255 * mean) * (1 / (255 * std))


def _classify(model, images):
    if getattr(model, "head_distillation", None) is not None:
        tokens, _ = _encoded(model, images)
        first, second = (tf.reshape(model.encoder.norm(rows(tokens, i, 1)), (1, -1)) for i in (0, 1))
        logits = (model.head(first) + model.head_distillation(second)) / 2
    else:
        logits = model.head(_embed(model, images))
    return tf.nn.softmax(logits)


def _embed(model, images):
    if not hasattr(model, "encoder"):
        return model.features(images)
    tokens, _ = _encoded(model, images)
    pooled = pooled_tokens(model, tokens)
    for layer in (model.pooled_norm, model.pre_logits):
        pooled = pooled if layer is None else layer(pooled)
    return pooled  # (1, D)


def _attention_map(model, images):
    """Attention rollout: identity added, layers multiplied, the last first and only for the row that is read."""
    _, weights = _encoded(model, images)
    prefix, length = model.prefix_tokens, weights[0].shape[-1]
    start, count = (prefix, length - prefix) if reads_patches(model) else (0, 1)
    row = tf.constant([[[float(start <= i < start + count) / count for i in range(length)]]])  # (1, 1, N)
    *before, last = [tf.reduce_mean(one, axis=1) for one in weights]  # (1, N, N) each
    # Not a product with the constant row, which GPUs refuse.
    row = (row + tf.reduce_mean(rows(last, start, count), axis=1, keepdims=True)) / 2
    for one in reversed(before):
        row = (row + tf.matmul(row, one)) / 2  # (1, 1, N)
    patches = tf.slice(row, (0, 0, prefix), (1, 1, length - prefix))
    patches = patches / tf.reduce_max(patches, axis=-1, keepdims=True)
    return tf.reshape(patches, (1, *model.grid))  # (1, h, w)


def normalised_tokens(model, pixels):
    """What the plain blocks' layer normalizations give, two a block in their order, (1, N, D) each."""
    normed = []
    if plain_blocks(model):
        _encoded(model, normalized(pixels, model.preprocessing), normed)
    return normed


def _encoded(model, images, normed=None):
    """The last block's tokens, not normalized, (1, N, D), and the attention weights of all blocks, (1, K, N, N)."""
    normed = [] if normed is None else normed
    weights = []

    def run(block, tokens):
        with tf.name_scope(block.name):  # what converters call the operations by
            return _block(block, tokens, weights, normed) if isinstance(block, EncoderBlock) else block(tokens)

    return model.apply_blocks(model.add_tokens(model.embed(images)), run), weights


def _block(block, tokens, weights, normed):
    with tf.name_scope("attention"):
        normed.append(_normed(block.norm_attention, tokens))
        branch = _attend(block.attention, normed[-1], weights)
        tokens = tokens + (branch if block.scale_attention is None else block.scale_attention(branch))
    with tf.name_scope("mlp"):
        normed.append(_normed(block.norm_mlp, tokens))
        branch = block.mlp(normed[-1])
        return tokens + (branch if block.scale_mlp is None else block.scale_mlp(branch))


def _normed(norm, tokens):
    """`LayerNorm` that multiplies by its scale before it divides by the deviation.

    The converter would move a scale at the end into the next product, and what is between would keep its range.
    """
    with tf.init_scope():  # the scales' numbers, also while a graph is traced
        unscaled = np.all(norm.gamma.numpy() == 1)
    with tf.name_scope(norm.name):  # `quantize` knows normalizations by it
        centered = tokens - tf.reduce_mean(tokens, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        scaled = centered if unscaled else centered * norm.gamma
        return scaled * tf.math.rsqrt(variance + norm.epsilon) + norm.beta


def _attend(layer, tokens, weights):
    """`SelfAttention` with one product and one transposition for queries, keys and values together."""
    length, width = tokens.shape[1:]
    heads, head = layer.num_heads, width // layer.num_heads
    joined = tf.reshape(layer.qkv(tokens), (1, length, 3 * heads, head))
    query, key, value = tf.split(tf.transpose(joined, (0, 2, 1, 3)), 3, axis=1)  # (1, K, N, d)
    if layer.query_norm is not None:
        query, key = layer.query_norm(query), layer.key_norm(key)
    # The queries are scaled already, see `device_copy`.
    logits = tf.matmul(query, key, transpose_b=True)  # (1, K, N, N)
    if layer.relative is not None:
        logits = logits + layer.relative(query)
    weights.append(tf.nn.softmax(logits))
    mixed = tf.transpose(tf.matmul(weights[-1], value), (0, 2, 1, 3))  # (1, N, K, d)
    # The Dense layer's own form loses an axis to the converter, and GPUs add tensors of equal axes only.
    return tf.matmul(tf.reshape(mixed, (1, length, width)), layer.out.kernel) + layer.out.bias
