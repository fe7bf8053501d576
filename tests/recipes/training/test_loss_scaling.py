"""Loss scaling of mixed_float16 equals Keras's rule, any number of replicas, and a run without an interruption."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.processes import replicas
from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised
from keras_vit.recipes.runs.open_run import check_devices, check_precision
from keras_vit.recipes.runs.supervised import compile_classifier
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.callbacks import NonfiniteSteps
from keras_vit.recipes.training.optimizers import SGD

STEPS, BATCH = 6, 16


def counters(optimizer):
    scale = optimizer.loss_scale
    skipped = (optimizer.nonfinite_steps, optimizer.consecutive_nonfinite_steps)
    names = ("steps", "nonfinite", "in_a_row", "overflows", "scale")
    values = (optimizer.iterations, *skipped, scale.overflows, scale.scale)
    return {name: int(value.numpy()) for name, value in zip(names, values)}


def test_scale_and_weights_follow_keras(monkeypatch):
    monkeypatch.setattr(replicas, "GROWTH_STEPS", 3)
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), dynamic_growth_steps=3)
    ours = SGD(0.1, loss_scaling=True)
    variables = [keras.Variable(np.ones(2, "float32")) for _ in range(2)]
    random = np.random.default_rng(0)
    finite = [True] * 7 + [False] * 4 + list(random.random(40) < 0.8)
    assert ours.scale_loss(tf.constant(3.0)) == theirs.scale_loss(tf.constant(3.0)) == 3 * 2.0**15
    for optimizer, variable in zip((theirs, ours), variables):
        optimizer.build([variable])
    scales = []
    for is_finite in finite:
        gradient = random.standard_normal(2).astype("float32")
        for optimizer, variable in zip((theirs, ours), variables):
            scaled = optimizer.scale_loss(tf.constant(gradient))
            optimizer.apply([scaled if is_finite else scaled * np.inf], [variable])
        assert float(ours.loss_scale.scale) == float(theirs.dynamic_scale)
        np.testing.assert_array_equal(*variables)
        scales.append(float(ours.loss_scale.scale))
    assert max(scales) > 2**16 and min(scales) < 2**14 and scales[2] == 2**16
    assert ours.get_config()["loss_scaling"] and "loss_scaling" not in theirs.get_config()


def test_the_smallest_scale_counts_nonfinite_steps_and_stops(monkeypatch):
    monkeypatch.setattr(replicas, "INITIAL_SCALE", 4.0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
    model.compile(SGD(0.1, loss_scaling=True), "mse", jit_compile=False, auto_scale_loss=False)
    model.optimizer.build(model.trainable_variables)
    before = model.get_weights()
    data = tf.data.Dataset.from_tensors((np.full((4, 3), np.nan, "float32"), np.zeros((4, 2)))).repeat(4)
    history = model.fit(data, shuffle=False, verbose=0, callbacks=[NonfiniteSteps(3)]).history
    assert counters(model.optimizer) == {"steps": 4, "nonfinite": 2, "in_a_row": 2, "overflows": 2, "scale": 1}
    assert (history["overflows"], history["nonfinite_steps"], history["loss_scale"]) == ([2], [2], [1.0])
    with pytest.raises(FloatingPointError, match="3 steps in a row, up to step 5"):
        model.fit(data, shuffle=False, verbose=0, callbacks=[NonfiniteSteps(3)])
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)


def recipe_of(precision):
    return Supervised(
        architecture=Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3),
        data=Data(image_size=8, batch_size=BATCH),
        optimizer=Optimizer("sgd", 0.1, "constant", global_clipnorm=0.5, accumulation_steps=2, ema_momentum=0.9),
        run=Run(precision=precision),
        total_steps=100,
    )


def trained(precision, strategy):
    """Model and optimizer variables after six steps; in the second, gradients of the second half overflow."""
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (STEPS, BATCH, 8, 8, 3)).astype("float32")
    weights = np.ones((STEPS, BATCH), "float32")
    weights[1, -1] = 1e12 if precision == "mixed_float16" else np.nan
    labels = random.integers(0, 5, (STEPS, BATCH))
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model, _ = compile_classifier(recipe_of(precision), 5, 100)
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, 2)
    start = [np.asarray(weight) for weight in model.trainable_weights]
    model.fit(tf.data.Dataset.from_tensor_slices((images, labels, weights)), shuffle=False, verbose=0)
    return start, model


@pytest.mark.slow
def test_replicas_equal_one_device_and_an_overflow_skips_one_step(strategy_of, without_xla):
    # In the float32 run the same step is skipped, because of a NaN.
    start, exact = trained("float32", strategy_of(1))
    models = [trained("mixed_float16", strategy_of(replicas))[1] for replicas in (1, 2)]
    moved = max(np.abs(a - b).max() for a, b in zip(start, exact.trainable_weights))
    for model in models:
        assert model.compute_dtype == "float16" and model.head.compute_dtype == "float32"
        expected = {"steps": 6, "nonfinite": 0, "in_a_row": 0, "overflows": 1, "scale": 2**14}
        assert counters(model.optimizer) == expected
        for one, other in zip(exact.trainable_weights, model.trainable_weights):
            assert other.dtype == "float32"
            np.testing.assert_allclose(one, other, atol=5e-3 * moved)
        for one, other in zip(exact.optimizer.averages, model.optimizer.averages):
            np.testing.assert_allclose(one, other, atol=5e-3 * moved)
    for one, other in zip(*(model.trainable_weights for model in models)):
        np.testing.assert_allclose(one, other, atol=5e-3 * moved)


def test_tpus_get_bfloat16():
    check_precision(Run(precision="mixed_float16"), is_tpu=False)
    with pytest.raises(ValueError, match="mixed_bfloat16"):
        check_precision(Run(precision="mixed_float16"), is_tpu=True)
    devices = JaxDevices.__new__(JaxDevices)  # none is here
    devices.names, devices.num_replicas_in_sync, devices.process, devices.processes = ["tpu:0"], 1, 0, 1
    with pytest.raises(ValueError, match="mixed_float16"):
        check_devices(recipe_of("mixed_float16"), devices)
    devices.names = ["gpu:0"]
    check_devices(recipe_of("mixed_float16"), devices)
