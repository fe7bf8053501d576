"""The signatures of a TFLite file as functions of pixels. D width, N tokens, h w patch grid."""

import numpy as np
import tensorflow as tf

from keras_vit.classification import has_classes, is_projection, output_activation
from keras_vit.export.names import ATTENTION, CLASSIFY, EMBED, OUTPUTS
from keras_vit.export.tflite.arithmetic import FLOAT, arithmetic
from keras_vit.export.tflite.graph_rewrite import (
    encode,
    encoder_blocks,
    normalize,
    pool,
    token_slice,
    tokens_read,
)
from keras_vit.export.tflite.layer_norm import layer_norm
from keras_vit.inspect.attention import patch_share


def available_signatures(model) -> tuple[str, ...]:
    """Signatures that a model can have: "classify" requires classes, "attention" plain encoder blocks."""
    return (CLASSIFY,) * has_classes(model) + (EMBED,) + (ATTENTION,) * bool(encoder_blocks(model))


def signature_function(model, signature: str, form: str = FLOAT):
    """A function of `images`, (1, H, W, 3) float32 in [0, 255], that computes one of the `available_signatures`.

    "classify" returns probabilities (1, num_classes), see `output_activation`, "embed" the features before the
    head, (1, D), or with `projection` the model's output, (1, num_classes), "attention" the map of
    `keras_vit.inspect.attention`, (1, h, w) in [0, 1].

    Args:
        model: An `export_copy`.
        signature: Name of the signature.
        form: See `arithmetic.arithmetic`.
    """
    function = {CLASSIFY: _classify, EMBED: _embed, ATTENTION: _attention_map}[signature]

    def run(images):
        with arithmetic(form):
            scaled = images if hasattr(model, "takes_pixels") else normalize(images, model.preprocessing)
            return {OUTPUTS[signature]: function(model, scaled)}

    return run


def _classify(model, images):
    if getattr(model, "head_distillation", None) is not None:
        tokens, _ = encode(model, images, read=tokens_read(model))
        first, second = (tf.reshape(layer_norm(model.encoder.norm, token_slice(tokens, i, 1)), (1, -1)) for i in (0, 1))
        logits = (model.head(first) + model.head_distillation(second)) / 2
    else:
        logits = model.head(_features(model, images))
    return getattr(tf.nn, output_activation(model))(logits)


def _embed(model, images):
    features = _features(model, images)
    return model.head(features) if is_projection(model) else features


def _features(model, images):
    if not hasattr(model, "encoder"):
        return model.features(images)
    tokens, _ = encode(model, images, read=tokens_read(model))
    pooled = pool(model, tokens)
    if model.pooled_norm is not None:
        pooled = layer_norm(model.pooled_norm, pooled)
    return pooled if model.pre_logits is None else model.pre_logits(pooled)  # (1, D)


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
    *before, last = [tf.reduce_mean(one, axis=1) for one in weights]  # (1, N, N) each; only the rows read in the last
    # A mean of rows, not a product with the constant row: GPU delegates take no constant first factor.
    for weight, start, count in read:
        mean = tf.reduce_mean(token_slice(last, start, count), axis=1, keepdims=True)
        row += mean if weight == 1 else weight * mean
    row /= 2
    for one in reversed(before):
        row = (row + tf.matmul(row, one)) / 2  # (1, 1, N)
    patches = tf.slice(row, (0, 0, prefix), (1, 1, length - prefix))
    patches = patches / tf.reduce_max(patches, axis=-1, keepdims=True)
    return tf.reshape(patches, (1, *model.grid))  # (1, h, w)
