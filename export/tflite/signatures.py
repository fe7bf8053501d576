"""The signatures of a .tflite file, and their conversion to a float32 file.

B images, H W pixels, h w patch grid, N tokens, D width.
"""

import re
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.names import ATTENTION, CLASSIFY, EMBED, HEAD, INPUT, NORM, OUTPUTS, PATCHES
from keras_vit.export.saved_model import save_functions
from keras_vit.export.tflite.arithmetic import FLOAT, arithmetic, group_norm, layer_norm, watch_norms
from keras_vit.export.tflite.encoder import encode, is_rewritten, normalize, pool, token_slice, tokens_read
from keras_vit.inspect.attention import patch_share
from keras_vit.keras_internals import all_layers
from keras_vit.layers import PatchEmbedding
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.resnet.standardized_conv import GroupNorm
from keras_vit.messages import error_summary
from keras_vit.models.classification import is_projection, output_activation
from keras_vit.models.image_model import ImageModel


def convert(
    copy, signatures: Sequence[str] = (CLASSIFY,), form: str = FLOAT, half: bool = False, batch_size: int = 1
) -> bytes:
    """Converts a `folded_copy` to a float32 TFLite file; with `half`, its weights are float16."""
    spec = tf.TensorSpec((batch_size, *copy.image_size, copy.channels), tf.float32, name=INPUT)
    functions = {
        name: tf.function(signature_function(copy, name, form), [spec], autograph=False).get_concrete_function()
        for name in signatures
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_functions(folder, functions, {})  # half the time of Keras's exporter, which saves all objects
        except tf.errors.OpError as error:
            raise OSError(
                f"The folder {tempfile.gettempdir()} for temporary files cannot be written: {error_summary(error)}. "
                "Free some space there, or set TMPDIR to another disk."
            ) from error
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(signatures))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if half:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # of a class that TensorFlow does not export
            if not (missing := re.search(r"(?:TF Select|Custom) ops: (.*)", str(error))):
                raise
            raise ValueError(
                f"{copy.name} has operations that TFLite lacks, or lacks for so many axes: {missing[1]}. Use "
                "write_saved_model or write_onnx."
            ) from error


def measure_square_sums(model, signature: str, images):
    """Sets `square_sums` of the normalizations: (low, high) of the sums of squares of their centered tokens.

    The low end is half of the smallest sum, but not below half a step of an 8-bit tensor.
    """
    norms: list = []

    @tf.function
    def extremes(image):
        with watch_norms() as seen:
            signature_function(model, signature)(image)
        norms[:] = [norm for norm, _ in seen]
        return [(tf.reduce_min(sums), tf.reduce_max(sums)) for _, sums in seen]

    extremes_of_images = np.array([extremes(tf.constant(image[None])) for image in images])  # (n, normalizations, 2)
    for norm in norms:
        # One normalization may be called several times: for the class and the distillation token.
        of_norm = extremes_of_images[:, [other is norm for other in norms]]  # (n, calls, 2)
        low, high = of_norm[..., 0].min(), max(of_norm[..., 1].max(), 1e-12)
        norm.square_sums = float(max(low / 2, high / 512)), float(high)


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
