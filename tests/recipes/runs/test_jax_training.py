"""Training with Keras on JAX: on one device, on eight and in two processes, it equals that on TensorFlow."""

import json
import math
import os
import re
import socket
import subprocess
import sys

import jax_training
import numpy as np
import pytest
from checkpointed_training import steps
from jax_training import FROM_TENSORFLOW, HALF, HALF_DONE, NO_DROPS, RECIPES, REPLICAS, SHARDED, STEPS

import keras_vit
from keras_vit.recipes.preflight.compile_steps import compile_in_subprocess

pytestmark = pytest.mark.extended
FLAGS = "--xla_force_host_platform_device_count={} --xla_backend_optimization_level=0"


def start(folder, devices, **more):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS.format(devices)}
    command = [sys.executable, jax_training.__file__, str(folder)]
    return subprocess.Popen(command, env=environment | more, stderr=subprocess.PIPE, text=True)


def wait(process):
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jax")


@pytest.fixture(scope="module")
def results(folder):
    jax_training.trained(jax_training.resumable(NO_DROPS, folder / FROM_TENSORFLOW), HALF)
    wait(start(folder, 8))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    values = [(address, "2", str(process)) for process in range(2)]
    for process in [start(folder, 4, **dict(zip(jax_training.PROCESSES, value))) for value in values]:
        wait(process)
    return {file.stem: dict(np.load(file)) for file in folder.glob("*.npz")}


@pytest.fixture(scope="module")
def on_tensorflow():
    return {name: jax_training.trained(recipe) for name, recipe in RECIPES.items()}


def assert_equal(results, expected, atol=1e-5):
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=atol, err_msg=name)


@pytest.mark.parametrize("name", RECIPES)
def test_eight_devices_equal_tensorflow(name, results, on_tensorflow):
    assert_equal(results[name], on_tensorflow[name])


@pytest.mark.parametrize("name", SHARDED)
def test_a_sharded_optimizer_changes_nothing(name, results):
    assert_equal(results[f"{name}-sharded"], results[name], 1e-6)


@pytest.mark.parametrize("name", ["one-device", "process-0", "process-1", FROM_TENSORFLOW])
def test_other_ways_equal_tensorflow(name, results, on_tensorflow):
    expected = on_tensorflow["supervised"]
    assert_equal(results[name], expected)
    first = np.random.default_rng(0).normal(scale=0.1, size=expected["0"].shape)
    assert np.abs(expected["0"] - first).max() > 1e-3  # it was trained


def test_a_resumed_run_is_equal_bit_for_bit(results):
    weights = [name for name in results["whole"] if name.isdigit()]
    assert weights
    for name in weights:
        np.testing.assert_array_equal(results["resumed"][name], results["whole"][name])
    assert np.abs(results["whole"]["0"] - results["supervised"]["0"]).max() > 1e-3  # there was dropout


def test_tensorflow_resumes_a_run(results, on_tensorflow, folder):
    assert steps(folder / HALF_DONE)[0] == HALF
    assert_equal(
        jax_training.trained(jax_training.resumable(NO_DROPS, folder / HALF_DONE)), on_tensorflow["supervised"]
    )
    assert steps(folder / HALF_DONE)[0] == STEPS


def test_results_of_two_processes(results, folder):
    model = keras_vit.load(str(folder / "processes" / "model.keras"))
    for name, weight in enumerate(model.trainable_variables):
        np.testing.assert_allclose(weight, results["process-0"][str(name)], atol=1e-6, err_msg=weight.path)
    metrics = json.loads((folder / "processes" / "metrics.json").read_text())
    assert metrics["top1"] == pytest.approx(results["process-0"]["top1"], abs=1e-6)


def test_steps_that_are_not_finite_change_nothing(results):
    good, bad = dict(results["good-steps"]), dict(results["bad-steps"])
    counts = {name: bad.pop(name) - good.pop(name) for name in list(good) if good[name].dtype.kind in "iu"}
    assert sorted(counts.values()) == [0, 3, 3]  # not finite in a row at the end, not finite, steps
    assert good.keys() == bad.keys() and len(good) == 7  # two weights, their momentum and average, the learning rate
    for name, value in good.items():
        np.testing.assert_array_equal(bad[name], value, err_msg=name)


def test_a_model_can_be_used_after_ema(results):
    for weight, expected in zip(results["after-ema"].values(), jax_training.used_after_ema(), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-6)


def test_the_steps_compile_for_a_tpu(results, folder):
    training, evaluation = ((folder / f"{kind}.hlo").read_bytes() for kind in ("training", "evaluation"))
    step = compile_in_subprocess(training, "v5e:2x2", REPLICAS, partitioned=True)["schedule"]
    assert "all-reduce" in step and re.search(r"f32\[4,8,8,3\]\S* parameter", step)  # a device's part of 16 images
    step = compile_in_subprocess(evaluation, "v5e:2x2", 1)["schedule"]
    assert "all-reduce" not in step and re.search(r"f32\[16,8,8,3\]\S* parameter", step)


def test_the_sharded_step_holds_a_part_of_the_optimizers_state(results, folder):
    program = (folder / "sharded.hlo").read_bytes()
    step = compile_in_subprocess(program, "v5e:2x2", REPLICAS, partitioned=True)["schedule"]
    assert "all-reduce-scatter" in step and " all-gather(" in step
    inputs = re.findall(r"f32\[([\d,]+)\]", step[step.index("\nENTRY ") :].partition(") -> ")[0])
    matrices = (4 * 4 * 3 + 4 + 3 * 512 + 3 * 512 + 10) * 512  # patches, positions, attention, MLP, head
    vectors = (1 + 4 + 3 + 1 + 2 + 2) * 512 + 10  # biases and normalizations
    images = 4 * 8 * 8 * 3
    # Two moments and the average of each weight.
    held = matrices + vectors + 3 * (matrices / REPLICAS + vectors) + images
    assert sum(math.prod(map(int, shape.split(","))) for shape in inputs) == held
