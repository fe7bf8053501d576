"""N replicas with batch b equal one with batch N * b, in float64: only the order of sums differs."""

import functools
import os
import subprocess
import sys
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import script

import keras_vit
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.optimizers import build_optimizer

pytestmark = pytest.mark.slow

STEPS, BATCH = 10, 16
CLIPPED = {"decay": "constant", "global_clipnorm": 0.05}
RECIPES = {
    "sgd": Optimizer("sgd", 0.1, **CLIPPED),
    "adamw": Optimizer("adamw", 1e-3, weight_decay=0.1, ema_momentum=0.9, layer_decay=0.7, **CLIPPED),
    "muon": Optimizer("muon", 1e-3, weight_decay=0.1, **CLIPPED),
}


@pytest.fixture(autouse=True)
def _float64():
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


def strategy_of(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    devices = [f"CPU:{i}" for i in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


@functools.lru_cache
def train(replicas, parts, recipe, keras_alone=False):
    """Ten steps; the halves of each batch differ in scale and labels, so clipping each alone changes the result.

    Returns all variables of the model and its optimizer, and the logs.
    """
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (BATCH * STEPS, 8, 8, 3))
    images[::2] *= 0.1
    labels = random.integers(0, 5, BATCH * STEPS)
    labels.reshape(STEPS, 2, BATCH // 2)[:, 0] = 0
    keras.utils.set_random_seed(0)
    with strategy_of(replicas).scope():
        model = keras_vit.VisionTransformer(
            image_size=8, patch_size=4, depth=1, width=12, mlp_dim=24, num_heads=3, num_classes=5, dtype="float64"
        )
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        optimizer = build_optimizer(recipe, 100, model)
        if keras_alone:
            optimizer = keras.optimizers.SGD(recipe.learning_rate, momentum=0.9, global_clipnorm=recipe.global_clipnorm)
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
    accumulate_gradients(model, parts)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH, drop_remainder=True)
    logs = model.fit(dataset, shuffle=False, verbose=0).history
    assert model.distribute_strategy.num_replicas_in_sync == replicas
    return [variable.numpy() for variable in model.variables + optimizer.variables], logs


def largest_difference(one, other):
    assert len(one) == len(other)
    return max(np.abs(a - b).max() for a, b in zip(one, other))


def test_replicas_and_parts_equal_one_batch_with_clipping_active():
    whole, logs = train(1, 1, RECIPES["sgd"])
    cut, logs_of_cut = train(2, 2, RECIPES["sgd"])
    assert largest_difference(whole, cut) < 1e-10
    for name, values in logs.items():
        np.testing.assert_allclose(logs_of_cut[name], values, atol=1e-6)


def test_replicas_of_muon():
    whole, cut = (train(count, count, RECIPES["muon"])[0] for count in (1, 2))
    assert largest_difference(whole, cut) < 1e-10


def test_four_replicas_equal_one(tmp_path):
    # In a separate process: logical devices are created once, and the other tests have two.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = script(__file__, tmp_path / "four.npz")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    one, _ = train(1, 1, RECIPES["adamw"])
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert largest_difference(one, list(np.load(tmp_path / "four.npz").values())) < 1e-10


def test_clipping_is_active_and_the_optimizer_of_keras_differs():
    recipe = RECIPES["sgd"]
    clipped, _ = train(1, 1, recipe)
    free, _ = train(1, 1, replace(recipe, global_clipnorm=None))
    assert largest_difference(clipped, free) > 1e-2
    theirs, _ = train(2, 1, recipe, keras_alone=True)
    # The model's variables come first and are equally many.
    assert max(np.abs(a - b).max() for a, b in zip(clipped[:10], theirs[:10])) > 1e-3


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    keras.config.set_floatx("float64")
    np.savez(sys.argv[1], *train(4, 2, RECIPES["adamw"])[0])
