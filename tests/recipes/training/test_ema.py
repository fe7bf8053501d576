import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.training.ema import EvaluateWithEMA, use_ema_weights
from keras_vit.recipes.training.optimizers import SGD


def strategy_of(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())


def batches():
    random = np.random.default_rng(0)
    data = random.standard_normal((24, 3)).astype("float32"), random.standard_normal((24, 2)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)


def build(replicas=1, **ema):
    with strategy_of(replicas).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
        model.compile(SGD(0.1, momentum=0.9, **ema), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    return model


def averages(model):
    return [average.numpy() for average in model.optimizer.averages]


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other))


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_validation_uses_the_ema_and_training_does_not(replicas):
    model, plain = build(replicas, use_ema=True, ema_momentum=0.9), build(replicas)
    options = {"epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(batches(), validation_data=batches(), callbacks=[EvaluateWithEMA()], **options).history
    value = history["val_loss"][-1]
    plain.fit(batches(), **options)
    # The weights that training continues with are unchanged, bit for bit.
    assert equal(model.get_weights(), plain.get_weights())
    means = averages(model)
    assert not equal(means, model.get_weights()) and value != plain.evaluate(batches(), verbose=0)
    use_ema_weights(model)
    assert equal(model.get_weights(), means)
    np.testing.assert_allclose(model.evaluate(batches(), verbose=0), value, rtol=1e-6)


def test_evaluate_swaps_and_restores():
    model = build(use_ema=True, ema_momentum=0.9)
    model.fit(batches(), epochs=2, shuffle=False, verbose=0)
    weights, means = model.get_weights(), averages(model)
    found = model.evaluate(batches(), verbose=0, callbacks=[EvaluateWithEMA()])
    assert equal(model.get_weights(), weights) and equal(averages(model), means)
    use_ema_weights(model)
    assert found == model.evaluate(batches(), verbose=0)


@pytest.mark.slow
def test_two_fits_equal_one():
    one, two = build(use_ema=True, ema_momentum=0.9), build(use_ema=True, ema_momentum=0.9)
    one.fit(batches(), epochs=4, shuffle=False, verbose=0)
    for _ in range(2):
        two.fit(batches(), epochs=2, shuffle=False, verbose=0, callbacks=[EvaluateWithEMA()], validation_data=batches())
    assert equal(one.get_weights(), two.get_weights()) and equal(averages(one), averages(two))


def test_ema_starts_from_the_first_weights():
    model = build(use_ema=True, ema_momentum=0.9)
    model.optimizer.apply([np.full((3, 2), np.nan, "float32"), np.zeros(2, "float32")])  # not a first step
    initial = [np.array(weight) for weight in model.get_weights()]
    assert equal(averages(model), initial)
    model.set_weights([weight + 1 for weight in initial])  # as a checkpoint restored after the optimizer was built
    model.optimizer.apply([np.zeros((3, 2), "float32"), np.zeros(2, "float32")])
    for average, weight in zip(averages(model), initial):
        np.testing.assert_allclose(average, weight + 1)


def test_nothing_happens_without_ema():
    model = build()
    model.fit(batches(), shuffle=False, verbose=0, validation_data=batches(), callbacks=[EvaluateWithEMA()])
    weights = model.get_weights()
    use_ema_weights(model)
    assert equal(model.get_weights(), weights)
