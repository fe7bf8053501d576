"""A training with dropout, Adam and an EMA on a model of eight weights, for tests of checkpoints."""

import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.runs.folder import find_checkpoints
from keras_vit.recipes.training.callbacks import EvaluateWithEMA, NonfiniteSteps
from keras_vit.recipes.training.optimizers import Adam


def build(units=2, steps_per_execution=1):
    """A compiled model with dropout and an EMA of its weights."""
    dense = keras.layers.Dense(units, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5, seed=1), dense])
    optimizer = Adam(0.1, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "mse", jit_compile=False, steps_per_execution=steps_per_execution)
    model.optimizer.build(model.trainable_variables)
    return model


def batches(first=0, steps=12):
    random = np.random.default_rng(0)
    data = random.standard_normal((steps, 4, 3)), random.standard_normal((steps, 4, 2))
    return tf.data.Dataset.from_tensor_slices(tuple(part.astype("float32") for part in data)).skip(first)


def fit(model, checkpoints, *callbacks, **options):
    done = checkpoints.restore(model)
    callbacks = [*callbacks, EvaluateWithEMA(), NonfiniteSteps(3, checkpoints), checkpoints]
    return model.fit(batches(done), shuffle=False, verbose=0, callbacks=callbacks, **options)


def at(step, action, event="on_train_batch_begin"):
    """A callback that calls `action` once, in the first such event after at least `step` steps."""

    def act(*_, **__):
        if not acted and callback.model.optimizer.iterations.numpy() >= step:
            acted.append(True)
            action()

    acted = []
    callback = keras.callbacks.LambdaCallback()
    setattr(callback, event, act)
    return callback


def everything(model):
    return [np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)]


def steps(folder):
    """Steps of the checkpoints in a folder, the newest first."""
    return [int(path.rpartition("-")[2]) for path in find_checkpoints(folder)]


def assert_variables(model, expected):
    for value, reference in zip(everything(model), expected, strict=True):
        np.testing.assert_array_equal(value, reference)
