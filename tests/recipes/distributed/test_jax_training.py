"""Training with Keras on JAX: on one device, on eight and in two processes, it equals that on TensorFlow."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax_training
import numpy as np
import pytest
from jax_training import used_after_ema

import keras_vit
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints
from keras_vit.recipes.preflight.compiler_process import compile_in_subprocess

pytestmark = pytest.mark.slow

PROGRAM = Path(jax_training.__file__)
FLAGS = "--xla_force_host_platform_device_count={} --xla_backend_optimization_level=0"


def start(folder, devices, **more):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS.format(devices)}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder)], env=environment | more, stderr=subprocess.PIPE, text=True
    )


def wait(process):
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jax")


@pytest.fixture(scope="module")
def results(folder):
    half = {"folder": str(folder / jax_training.FROM_TENSORFLOW), "resume": True}
    jax_training.trained(jax_training.on_devices(jax_training.NO_DROPS, "one-device", **half), jax_training.HALF)
    wait(start(folder, 8))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    values = [(address, "2", str(process)) for process in range(2)]
    for process in [start(folder, 4, **dict(zip(jax_training.PROCESSES, value))) for value in values]:
        wait(process)
    programs = {file.name: file.read_bytes() for file in folder.glob("*.hlo")}
    return {file.stem: dict(np.load(file)) for file in folder.glob("*.npz")} | programs


@pytest.fixture(scope="module")
def on_tensorflow():
    return {name: jax_training.trained(recipe) for name, recipe in jax_training.RECIPES.items()}


def assert_equal(found, expected, atol):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=atol, err_msg=name)


@pytest.mark.parametrize("name", jax_training.RECIPES)
def test_eight_devices_equal_tensorflow(name, results, on_tensorflow):
    assert_equal(results[name], on_tensorflow[name], 1e-5)


def test_one_device_equals_tensorflow(results, on_tensorflow):
    expected = on_tensorflow["supervised"]
    assert_equal(results["one-device"], expected, 1e-5)
    start = np.random.default_rng(0).normal(scale=0.1, size=expected["0"].shape)
    assert np.abs(expected["0"] - start).max() > 1e-3  # it was trained


def test_two_processes_equal_one(results, on_tensorflow):
    assert_equal(results["process-0"], on_tensorflow["supervised"], 1e-5)
    assert_equal(results["process-1"], on_tensorflow["supervised"], 1e-5)


def test_a_resumed_run_is_equal_bit_for_bit(results):
    weights = [name for name in results["whole"] if name.isdigit()]
    assert weights
    for name in weights:
        np.testing.assert_array_equal(results["resumed"][name], results["whole"][name])
    assert np.abs(results["whole"]["0"] - results["supervised"]["0"]).max() > 1e-3  # there was dropout


def test_tensorflow_resumes_a_run(results, on_tensorflow, folder):
    resumed = {"folder": str(folder / jax_training.HALF_DONE), "resume": True}
    recipe = jax_training.on_devices(jax_training.NO_DROPS, "one-device", **resumed)
    assert find_checkpoints(resumed["folder"])[0].endswith(f"step-{jax_training.HALF}")
    found = jax_training.trained(recipe)
    assert_equal(found, on_tensorflow["supervised"], 1e-5)
    assert find_checkpoints(resumed["folder"])[0].endswith(f"step-{jax_training.STEPS}")


def test_a_run_of_tensorflow_is_resumed(results, on_tensorflow):
    assert_equal(results[jax_training.FROM_TENSORFLOW], on_tensorflow["supervised"], 1e-5)


def test_results_of_two_processes(results, folder):
    model = keras_vit.load(str(folder / "processes" / "model.keras"))
    for name, weight in enumerate(model.trainable_variables):
        np.testing.assert_allclose(weight, results["process-0"][str(name)], atol=1e-6, err_msg=weight.path)
    metrics = json.loads((folder / "processes" / "metrics.json").read_text())
    assert metrics["top1"] == pytest.approx(results["process-0"]["top1"], abs=1e-6)


def test_steps_that_are_not_finite_change_nothing(results):
    good, bad = results["good-steps"], results["bad-steps"]
    counts = {name: bad.pop(name) - good.pop(name) for name in list(good) if good[name].dtype.kind in "iu"}
    assert sorted(counts.values()) == [0, 3, 3]  # not finite in a row at the end, not finite, steps
    assert good.keys() == bad.keys() and len(good) == 7  # two weights, their momentum and average, the learning rate
    for name, value in good.items():
        np.testing.assert_array_equal(bad[name], value, err_msg=name)


def test_a_model_can_be_used_after_ema(results):
    for found, expected in zip(results["after-ema"].values(), used_after_ema(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_steps_compile_for_a_tpu(results):
    step = compile_in_subprocess(results["training.hlo"], "v5e:2x2", jax_training.REPLICAS, partitioned=True)[
        "schedule"
    ]
    assert "all-reduce" in step and re.search(r"f32\[4,8,8,3\]\S* parameter", step)  # a device's part of 16 images
    step = compile_in_subprocess(results["evaluation.hlo"], "v5e:2x2", 1)["schedule"]
    assert "all-reduce" not in step and re.search(r"f32\[16,8,8,3\]\S* parameter", step)
