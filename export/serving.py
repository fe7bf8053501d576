"""The signatures of a SavedModel as TensorFlow functions.

B batch, H W pixels of the model, h w pixels of an image, N tokens, K heads, C classes, D width of the features.
"""

from dataclasses import replace

import tensorflow as tf
from keras import ops

from keras_vit import Preprocessing
from keras_vit.classification import is_projection, output_activation
from keras_vit.decoding import decode
from keras_vit.export.names import CLASSIFY, INPUT, OUTPUTS, PROJECTION
from keras_vit.inspect.rollout import patch_share, resize_to_images, rollout
from keras_vit.resizing import size_before_crop

OUTPUT = OUTPUTS[CLASSIFY]
TOP = 5


def serving_functions(model, class_names: list[str] | None = None) -> dict:
    """Signature name -> `tf.function` for any batch size, see `write_saved_model`."""
    spec = tf.TensorSpec((None, *model.image_size, 3), tf.float32, name=INPUT)
    preprocessing = model.preprocessing
    features = _function(lambda images: {"features": tf.cast(model.features(images), tf.float32)}, spec)
    functions, predict = {"serving_default": features}, features
    if is_projection(model):
        predict = _function(lambda images: {PROJECTION: tf.cast(model(images, training=False), tf.float32)}, spec)
        functions = {"serving_default": predict, PROJECTION: predict}
    elif model.num_classes:
        logits = _function(lambda images: {"logits": tf.cast(model(images, training=False), tf.float32)}, spec)
        activation = getattr(tf.nn, output_activation(model))
        classify = _function(lambda images: {OUTPUT: activation(logits(images)["logits"])}, spec)
        functions = {"serving_default": classify, CLASSIFY: classify, "logits": logits}
        predict = lambda images: with_top_classes(classify(images)[OUTPUT], class_names)  # noqa: E731
    functions["features"] = features
    functions["serve_bytes"] = _function(
        lambda image_bytes: predict(decode_images(image_bytes, preprocessing)),
        tf.TensorSpec((None,), tf.string, name="image_bytes"),
    )
    functions["serve_uint8"] = _function(
        lambda images: predict(preprocess_images(images, preprocessing)),
        tf.TensorSpec((None, None, None, 3), tf.uint8, name=INPUT),
    )
    if hasattr(model, "attention_maps"):
        functions["attention"] = _function(lambda images: {"attention": attention_map(model, images)}, spec)
    return functions


def _function(function, spec):
    return tf.function(function, input_signature=[spec], autograph=False)


def with_top_classes(probabilities, class_names: list[str] | None = None) -> dict:
    """Probabilities (B, C) with the most likely classes, best first: probabilities, class indices and names."""
    values, indices = tf.math.top_k(probabilities, min(TOP, probabilities.shape[-1]))
    outputs = {OUTPUT: probabilities, "top_probabilities": values, "top_classes": indices}
    return outputs | ({"top_class_names": tf.gather(tf.constant(class_names), indices)} if class_names else {})


def decode_images(image_bytes, preprocessing: Preprocessing):
    """Decodes and preprocesses encoded images (B,) of any sizes: (B, H, W, 3) float32, as `model.classify` does."""

    def prepare(content):
        return preprocess_images(decode(content, accurate=True)[None], preprocessing)[0]

    shape = tf.TensorSpec((*preprocessing.image_size, 3), tf.float32)
    return tf.map_fn(prepare, image_bytes, fn_output_signature=shape)  # (B, H, W, 3)


def preprocess_images(images, preprocessing: Preprocessing):
    """`preprocessing(images)` for a size known only when the graph runs: (B, h, w, 3) uint8 -> (B, H, W, 3) float32."""
    if preprocessing.resize != "squash":
        images = _resize_and_crop(images, preprocessing)
        preprocessing = replace(preprocessing, resize="squash", crop_fraction=1.0)
    return preprocessing(images)


def _resize_and_crop(images, preprocessing):
    """`Preprocessing` without "squash" on tensors; float64 rounds as Python's floats do."""
    size = preprocessing.image_size
    target = size_before_crop(size, preprocessing.crop_fraction)
    sides = tf.cast(tf.shape(images)[1:3], tf.float64)
    resized = sides * tf.reduce_max(tf.constant(target, tf.float64) / sides)
    if preprocessing.resize == "shortest_area":
        resized = tf.cast(tf.round(resized), tf.int32)
        images = tf.image.resize(images, resized, "area")
        top, left = tf.unstack((resized - size) // 2)
    else:
        resized = tf.maximum(target, tf.cast(resized + 1e-6, tf.int32))
        method, antialias = preprocessing.interpolation, preprocessing.antialias
        images = tf.image.resize(tf.cast(images, tf.float32), resized, method, antialias=antialias)
        top, left = tf.unstack(tf.cast(tf.round((resized - size) / 2), tf.int32))
    images = images[:, top : top + size[0], left : left + size[1]]
    return tf.ensure_shape(images, (None, *size, 3))  # (B, H, W, 3)


def attention_map(model, images):
    """`keras_vit.attention_rollout` in float32 on tensors: (B, H, W, 3) -> (B, H, W) in [0, 1]."""
    attention = ops.cast(model.attention_maps(images), "float32")  # (B, depth, K, N, N)
    return resize_to_images(rollout(attention, model.prefix_tokens, patch_share(model)), model)
