"""N replicas with batch b equal one with batch N * b, in float64: only the order of sums differs."""

import functools
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.optimizers import build_optimizer

pytestmark = pytest.mark.slow

STEPS, BATCH = 5, 16
CLIPPED = {"decay": "constant", "global_clipnorm": 0.05}
SGD = Optimizer("sgd", 0.1, **CLIPPED)
ADAMW = Optimizer("adamw", 1e-3, weight_decay=0.1, ema_momentum=0.9, layer_decay=0.7, **CLIPPED)
MUON = Optimizer("muon", 1e-3, weight_decay=0.1, **CLIPPED)


@pytest.fixture(autouse=True)
def _float64():
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.fixture
def train(strategy_of):
    return functools.partial(_train, strategy_of)


def _train(strategy_of, replicas, parts, recipe):
    """Steps whose batches have halves that differ in scale and labels: clipping each alone changes the result.

    Returns all variables of the model and its optimizer, and the logs.
    """
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (BATCH * STEPS, 8, 8, 3))
    images[::2] *= 0.1
    labels = random.integers(0, 5, BATCH * STEPS)
    labels.reshape(STEPS, 2, BATCH // 2)[:, 0] = 0
    keras.utils.set_random_seed(0)
    size = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy_of(replicas).scope():
        model = keras_vit.VisionTransformer(**size, num_classes=5, dtype="float64")
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        optimizer = build_optimizer(recipe, 100, model)
        model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    accumulate_gradients(model, parts)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH, drop_remainder=True)
    logs = model.fit(dataset, shuffle=False, verbose=0).history
    assert model.distribute_strategy.num_replicas_in_sync == replicas
    return [variable.numpy() for variable in model.variables + optimizer.variables], logs


def largest_difference(one, other):
    assert len(one) == len(other)
    return max(np.abs(a - b).max() for a, b in zip(one, other))


@pytest.mark.parametrize(
    "recipe,replicas,parts",
    [
        pytest.param(SGD, 2, 2, id="sgd"),
        pytest.param(MUON, 2, 1, id="muon", marks=pytest.mark.extended),
        pytest.param(ADAMW, 4, 2, id="adamw", marks=pytest.mark.extended),
    ],
)
def test_replicas_and_parts_equal_one_batch_with_clipping_active(train, recipe, replicas, parts):
    whole, logs = train(1, 1, recipe)
    cut, logs_of_cut = train(replicas, parts, recipe)
    assert largest_difference(whole, cut) < 1e-10
    for name, values in logs.items():
        np.testing.assert_allclose(logs_of_cut[name], values, atol=1e-6)
    if recipe is SGD:
        assert largest_difference(whole, train(1, 1, replace(recipe, global_clipnorm=None))[0]) > 1e-2
