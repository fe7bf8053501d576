"""The forward pass and the signatures, rewritten for TFLite converters, quantizers and delegates.

B images, N tokens, D width, K heads, h w patch grid.

Static shapes, at most four axes, and only operations that XNNPACK, GPU delegates and quantizers support. The
results equal the model's up to rounding.
"""

from contextlib import contextmanager
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.checks import float32_copy
from keras_vit.export.names import (
    ATTENTION,
    ATTENTION_PROJECTIONS,
    CLASSIFY,
    EMBED,
    EMBEDDING,
    HEAD,
    NORM,
    OUTPUTS,
    PATCHES,
    VALUES,
)
from keras_vit.export.tflite.arithmetic import (
    FLOAT,
    INTEGERS,
    add_with_error,
    arithmetic,
    current_arithmetic,
    group_norm,
    layer_norm,
    softmax_times,
)
from keras_vit.inspect.attention import patch_share
from keras_vit.keras_internals import all_layers
from keras_vit.layers import EncoderBlock, PatchEmbedding
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.pooling import AttentionPooling, TokenPooling
from keras_vit.layers.resnet.standardized_conv import GroupNorm
from keras_vit.models import VisionTransformer
from keras_vit.models.classification import has_classes, is_projection, output_activation
from keras_vit.models.image_model import ImageModel
from keras_vit.models.outer_model import OuterModel


def export_copy(model):
    """A float32 copy whose weights may be changed: the factor 1 / sqrt(d) of attention is folded into its queries."""
    copy = float32_copy(model)
    for block in encoder_blocks(copy):
        _scale_queries(block.attention)
    if is_rewritten(copy) and (initial := copy.encoder.initial_norm):
        copy.encoder.initial_norm = partial(layer_norm, initial)  # `encode` applies it
    return copy


@contextmanager
def _rewritten_layers(model):
    """Layers that Keras calls, within: group normalizations of at most four axes, and names for the passes over a file.

    The layers may be the user's own, of an `OuterModel`.
    """
    changed = []
    for layer in all_layers(model):
        if isinstance(layer, GroupNorm):
            layer.call = _named(NORM, partial(group_norm, layer))
        elif isinstance(layer, (LayerNorm, PatchEmbedding)):
            layer.call = _named(NORM if isinstance(layer, LayerNorm) else PATCHES, layer.call)
        else:
            continue
        changed.append(layer)
    try:
        yield
    finally:
        for layer in changed:
            del layer.call


def _named(name, function):
    """The function, whose operations have this name."""

    def call(*arguments, **keywords):
        with tf.name_scope(name):
            return function(*arguments, **keywords)

    return call


_FORWARD = ("call", "features", "embed", "add_tokens", "encode", "apply_blocks", "pool", "both_heads")


def is_rewritten(model) -> bool:
    """Whether the forward pass is that of `VisionTransformer`; that of a subclass runs as Keras runs it."""
    return isinstance(model, VisionTransformer) and all(
        getattr(type(model), name) is getattr(VisionTransformer, name) for name in _FORWARD
    )


def encoder_blocks(model) -> list:
    """The `EncoderBlock`s of a model; empty for a BiT, an axial model or a forward pass of a user's own."""
    return [block for block in model.encoder.blocks if type(block) is EncoderBlock] if is_rewritten(model) else []


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


def normalize(images, preprocessing):
    """(pixel / 255 - mean) / std, as `keras_vit.Preprocessing`; by scalars if all channels have the same."""
    mean, std = (tf.constant(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    if len(set(preprocessing.mean)) == len(set(preprocessing.std)) == 1:
        mean, std = mean[0], std[0]
    # In this order: TFLite's 16-bit subtraction fails where the range of the tensor is twice the constant or more.
    return (images - 255 * mean) * (1 / (255 * std))


def encode(model, images, *, read: int | None = None, norm_outputs=None):
    """Runs embedding and encoder blocks.

    Args:
        model: An `export_copy`.
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


def layer_norm_outputs(model, images):
    """Outputs of the plain blocks' layer normalizations for images in [0, 255]: two per block, (B, N, D) each."""
    outputs = []
    if encoder_blocks(model):
        encode(model, normalize(images, model.preprocessing), norm_outputs=outputs)
    return outputs


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
    logits = tf.matmul(query, key, transpose_b=True)  # (B, K, N, N), scaled by `export_copy`
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


def available_signatures(model) -> tuple[str, ...]:
    """Signatures that a model can have: "classify" requires classes, "attention" plain encoder blocks."""
    if isinstance(model, OuterModel):
        return (CLASSIFY,)
    return (CLASSIFY,) * has_classes(model) + (EMBED,) + (ATTENTION,) * bool(encoder_blocks(model))


def signature_function(model, signature: str, form: str = FLOAT):
    """A function of `images`, (B, H, W, 3) float32 in [0, 255], that computes one of the `available_signatures`.

    "classify" returns probabilities (B, num_classes), see `output_activation`, "embed" the features before the
    head, (B, D), or with `projection` the model's output, (B, num_classes), "attention" the map of
    `keras_vit.inspect.attention_rollout`, (B, h, w) in [0, 1].
    """
    function = {CLASSIFY: _classify, EMBED: _embed, ATTENTION: _attention_map}[signature]

    def run(images):
        with arithmetic(form), _rewritten_layers(model):
            scaled = images if hasattr(model, "takes_pixels") else normalize(images, model.preprocessing)
            return {OUTPUTS[signature]: function(model, scaled)}

    return run


def _classify(model, images):
    if is_rewritten(model) and model.head_distillation is not None:
        tokens, _ = encode(model, images, read=tokens_read(model))
        batch, norm = images.shape[0], model.encoder.norm
        first, second = (tf.reshape(layer_norm(norm, token_slice(tokens, i, 1)), (batch, -1)) for i in (0, 1))
        with tf.name_scope(HEAD):
            logits = (model.head(first) + model.head_distillation(second)) / 2
    elif _has_own_call(model):
        logits = model(images)
    else:
        logits = _named(HEAD, model.head)(_features(model, images))
    return keras.activations.get(output_activation(model))(logits)


def _has_own_call(model) -> bool:
    return not (is_rewritten(model) or getattr(type(model), "call", None) is ImageModel.call)


def _embed(model, images):
    if _has_own_call(model) and (is_projection(model) or not model.num_classes):
        return model(images)
    features = _features(model, images)
    return _named(HEAD, model.head)(features) if is_projection(model) else features


def _features(model, images):
    if not is_rewritten(model):
        return model.features(images)
    tokens, _ = encode(model, images, read=tokens_read(model))
    pooled = pool(model, tokens)
    if model.pooled_norm is not None:
        pooled = layer_norm(model.pooled_norm, pooled)
    return pooled if model.pre_logits is None else model.pre_logits(pooled)  # (B, D)


def _attention_map(model, images):
    """Attention rollout of one row: a product of vectors with matrices, from the last layer to the first."""
    _, weights = encode(model, images, read=tokens_read(model))
    prefix, length = model.prefix_tokens, weights[0].shape[-1]
    share = patch_share(model)
    read = [(1 - share, 0, 1), (share, prefix, length - prefix)]  # weight, first token, number of tokens
    read = [part for part in read if part[0]]
    row_weights = np.zeros((1, 1, length), "float32")
    for weight, start, count in read:
        row_weights[..., start : start + count] = weight / count
    row = tf.constant(row_weights)
    *before, last = [
        tf.reduce_mean(layer, axis=1) for layer in weights
    ]  # (B, N, N) each; only the rows read in the last
    # A mean of rows, not a product with the constant row: GPU delegates take no constant first factor.
    for weight, start, count in read:
        mean = tf.reduce_mean(token_slice(last, start, count), axis=1, keepdims=True)
        row += mean if weight == 1 else weight * mean
    row /= 2
    for layer in reversed(before):
        row = (row + tf.matmul(row, layer)) / 2  # (B, 1, N)
    patches = tf.slice(row, (0, 0, prefix), (images.shape[0], 1, length - prefix))
    patches = patches / tf.reduce_max(patches, axis=-1, keepdims=True)
    return tf.reshape(patches, (images.shape[0], *model.grid))  # (B, h, w)
