"""Logits of images of any sizes by every kind of classifier: ours, models around ours, exported files. C classes."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from scipy.special import logit

from keras_vit.models.classification import output_activation
from keras_vit.models.outer_model import OuterModel
from keras_vit.recipes.processes.jax_devices import on_this_process
from keras_vit.recipes.processes.strategies import strategy_of

SMALLEST = 1e-12  # probability whose logarithm is taken


def activation_of(model) -> str:
    """What makes probabilities of what `logits_of_images` returns: "softmax" or "sigmoid"."""
    return output_activation(model) or model.ends_in


def logits_of_images(model) -> Callable:
    """Function from a list of images of any sizes to logits as an array."""
    if isinstance(model, OuterModel):
        return _outer_prediction(model)
    if not isinstance(model, keras.Model):
        return lambda images: model.logits(images, model.preprocessing)
    predict = _batch_prediction(model)
    return lambda images: predict(model.preprocessing(images))


def _outer_prediction(model: OuterModel) -> Callable:
    """Those of a model around one of ours, which may return probabilities, and take images of many sizes."""
    predict = _batch_prediction(model.model)

    def logits(images):
        batches = model.preprocess(images)
        outputs = np.concatenate([predict(batch) for batch in (batches if isinstance(batches, list) else [batches])])
        if not model.ends_in:
            return outputs
        probabilities = np.clip(outputs.astype("float64"), SMALLEST, 1 - SMALLEST)
        return logit(probabilities) if model.ends_in == "sigmoid" else np.log(probabilities)

    return logits


def _batch_prediction(model) -> Callable:
    """Function from a batch of the model's input to logits, also of a model that was created under a strategy.

    There `predict_on_batch` would take the whole batch to every replica, and return it as many times.
    """
    if keras.backend.backend() == "jax":
        return on_this_process()(model.predict_on_batch)
    if strategy_of(model).num_replicas_in_sync > 1:
        function = tf.function(lambda images: model(images, training=False), reduce_retracing=True)
        return lambda images: function(images).numpy()
    if tf.config.list_physical_devices("TPU"):  # Keras would compile for the TPU, but the model is on the host
        model.jit_compile = False
    return model.predict_on_batch
