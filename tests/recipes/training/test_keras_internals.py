import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.distributed.strategy import choose_strategy
from keras_vit.recipes.training.keras_internals import build_from_spec

STARTS = []


def started(count):
    STARTS.append(1)
    return count


def data():
    """4 endless batches a time, each start of which is counted."""
    x = tf.data.Dataset.from_tensors(np.zeros((4, 3), "float32")).repeat(4)
    head = tf.data.Dataset.range(1).map(lambda zero: tf.numpy_function(started, [zero], tf.int64))
    return head.flat_map(lambda _: x.map(lambda x: (x, tf.reduce_sum(x, axis=1, keepdims=True))))


def compiled():
    with choose_strategy("mirrored").scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", "mse", weighted_metrics=["mae"])
    return model


def starts(model):
    """How often training data was started by a `fit` of two epochs, each with a validation on other data."""
    del STARTS[:]
    x = np.zeros((4, 3), "float32")
    fit = {"steps_per_epoch": 2, "epochs": 2, "validation_data": (x, x[:, :1]), "verbose": 0, "shuffle": False}
    history = model.fit(data(), **fit).history
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(history)
    return len(STARTS)


def test_data_is_started_once():
    model = compiled()
    assert starts(model) == 2  # Keras
    model = compiled()
    with build_from_spec(model, data().element_spec):
        assert starts(model) == 1
    assert starts(model) == 2
