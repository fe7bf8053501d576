import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.training.callbacks import EvaluateWithEMA, use_ema_weights
from keras_vit.recipes.training.optimizers import SGD

EMA = {"use_ema": True, "ema_momentum": 0.9}


def batches():
    random = np.random.default_rng(0)
    data = random.standard_normal((24, 3)).astype("float32"), random.standard_normal((24, 2)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)


def build(**ema):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
    model.compile(SGD(0.1, momentum=0.9, **ema), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def fit(model, *callbacks, epochs=2, **options):
    return model.fit(batches(), epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks), **options).history


def averages(model):
    return [average.numpy() for average in model.optimizer.averages]


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other))


@pytest.mark.slow
def test_evaluations_use_the_ema_and_training_does_not():
    model, plain = build(**EMA), build()
    value = fit(model, EvaluateWithEMA(), validation_data=batches())["val_loss"][-1]
    fit(plain)
    # The weights that training continues with are unchanged, bit for bit.
    assert equal(model.get_weights(), plain.get_weights())
    weights, means = model.get_weights(), averages(model)
    assert not equal(means, weights) and value != plain.evaluate(batches(), verbose=0)
    found = model.evaluate(batches(), verbose=0, callbacks=[EvaluateWithEMA()])
    assert equal(model.get_weights(), weights) and equal(averages(model), means)
    use_ema_weights(model)
    assert equal(model.get_weights(), means) and found == model.evaluate(batches(), verbose=0)
    np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.slow
def test_two_fits_equal_one():
    one, two = build(**EMA), build(**EMA)
    fit(one, epochs=4)
    for _ in range(2):
        fit(two, EvaluateWithEMA(), validation_data=batches())
    assert equal(one.get_weights(), two.get_weights()) and equal(averages(one), averages(two))


def test_ema_starts_from_the_first_weights():
    model = build(**EMA)
    model.optimizer.apply([np.full((3, 2), np.nan, "float32"), np.zeros(2, "float32")])  # not a first step
    initial = [np.array(weight) for weight in model.get_weights()]
    assert equal(averages(model), initial)
    model.set_weights([weight + 1 for weight in initial])  # as a checkpoint restored after the optimizer was built
    model.optimizer.apply([np.zeros((3, 2), "float32"), np.zeros(2, "float32")])
    for average, weight in zip(averages(model), initial):
        np.testing.assert_allclose(average, weight + 1)


def test_nothing_happens_without_ema():
    model = build()
    weights = model.get_weights()
    model.evaluate(batches(), verbose=0, callbacks=[EvaluateWithEMA()])
    use_ema_weights(model)
    assert equal(model.get_weights(), weights)
