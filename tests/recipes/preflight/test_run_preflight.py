"""Reports on recipes and models: steps, costs, notes and errors. Most use a stub of the compiler."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import keras
import pytest

import keras_vit
from keras_vit.recipes.preflight import preflight
from keras_vit.recipes.preflight.compile_steps import CompilerKilled
from keras_vit.recipes.preflight.step_programs import ModelPrograms
from keras_vit.recipes.recipe import Distillation, Optimizer
from keras_vit.recipes.recipe.file import write_recipe

# Of an image: keys and values of 17 tokens; query, projection and MLP of the class token, in the only block.
FORWARD = 2 * (17 * 2 * 128 * 128 + 2 * 128 * 128 + 2 * 128 * 256) + 2 * 16 * 192 * 128
COMPILER = "keras_vit.recipes.preflight.compile_steps.compiler_process"
FAILED = {"seconds": 1.0, "peak_memory": 1.0, "schedule": "", "error": "INTERNAL: Oh"}


@pytest.fixture
def model():
    """A compiled model: two steps that are traced fast."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.extended
def test_recipe_on_a_slice_of_several_chips(recipe):
    """By the real compiler, and again from the cache."""
    report = preflight(recipe, "v5e:2x2")
    training, evaluation = report.steps
    assert report.ready and (training.kind, evaluation.kind) == ("training", "evaluation")
    assert training.batch_size == 16 and report.total_steps == 1_000
    # Weights, two moments and their moving average, in float32.
    assert training.memory["argument"] > 4 * 4 * report.num_parameters
    assert 2.5 * FORWARD < training.flops / 16 < 6 * FORWARD
    assert training.min_seconds == max(training.flops / 197e12, training.bytes / 819e9)
    assert report.min_chip_hours == pytest.approx(1_000 * training.min_seconds * 4 / 3600)
    assert "images/s" in str(report) and str(report).endswith("Ready.")
    assert json.loads(json.dumps(report.as_dict()))["steps"][0]["fits"] is True
    again = preflight(recipe, "v5e:2x2")
    assert [step.flops for step in again.steps] == [step.flops for step in report.steps]
    assert all(step.compile_seconds == 0 for step in again.steps)
    assert all(step.compile_seconds > 0 for step in report.steps)


@pytest.mark.extended
def test_recipe_on_jax(recipe, tmp_path):
    """The step of Keras's JAX backend, in a separate process."""
    write_recipe(replace(recipe, optimizer=Optimizer("sgd", warmup_steps=10)), tmp_path / "recipe.json")
    command = [sys.executable, "-m", "keras_vit_cli", "preflight", tmp_path / "recipe.json", "--topology", "v5e:2x2"]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "KERAS_HOME": str(tmp_path)}
    output = subprocess.run([*command, "--json"], env=environment, capture_output=True)
    assert output.returncode == 0, output.stderr.decode()
    training, evaluation = json.loads(output.stdout)["steps"]
    assert (training["batch_size"], evaluation["kind"]) == (16, "evaluation")
    assert 2.5 * FORWARD < training["flops"] / 16 < 6 * FORWARD
    assert 0.9 * FORWARD < evaluation["flops"] / 16 < 2 * FORWARD


@pytest.mark.extended
def test_a_step_that_jax_cannot_trace_is_reported():
    code = """
import keras
from keras_vit.recipes.preflight import preflight

class Branch(keras.layers.Layer):
    def call(self, x):
        return -x if branches and keras.ops.sum(x) > 0 else x

branches = False
inputs = keras.Input((4,))
model = keras.Model(inputs, Branch()(inputs))
branches = True
print(preflight(model, "v5e:1", 8).steps[0].problems)
"""
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "Attempted boolean conversion of traced array" in done.stdout, done.stderr


@pytest.mark.extended
def test_a_vit_of_keras_on_a_chip_of_two_cores():
    size = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 16, "mlp_dim": 32, "num_heads": 2}
    model = keras_vit.VisionTransformer(**size, num_classes=5)
    assert ModelPrograms(model).kinds == ("inference",)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    report = preflight(model, "v3:1", 4, kinds=("training",))
    assert report.ready and report.steps[0].memory_limit == 16 * 2**30 and report.topology.replicas == 2
    assert any("17 tokens 87%" in note for note in report.notes)


@pytest.mark.parametrize("room", [1, 0])
def test_compilers_run_one_by_one_when_memory_is_short(model, room, monkeypatch, tmp_path):
    running = []

    @contextmanager
    def compiler_process(*program):
        running.append(program)
        crowded = len(running) > room

        def wait(log):
            if crowded or len(running) > room:
                raise CompilerKilled("It was killed.")
            return dict(FAILED)

        try:
            yield wait
        finally:
            running.remove(program)

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(COMPILER, compiler_process)
    if room:
        assert [step.problems for step in preflight(model, "v5e:1", 8).steps] == [("INTERNAL: Oh",)] * 2
    else:
        with pytest.raises(CompilerKilled):
            preflight(model, "v5e:1", 8)


@pytest.mark.parametrize("error,compilations", [("INTERNAL: no space left", 2), ("RESOURCE_EXHAUSTED: HBM", 1)])
def test_only_errors_of_the_program_itself_are_stored(error, compilations, model, replace_compiler):
    compiled = []
    replace_compiler(lambda hlo, *_: compiled.append(hlo) or {**FAILED, "error": error})
    for _ in range(2):
        report = preflight(model, "v5e:1", 8, kinds=("inference",))
        assert not report.ready and error.partition(":")[0] in str(report) and str(report).endswith("Not ready.")
    assert len(compiled) == compilations


@pytest.mark.slow
def test_total_cost_is_only_for_the_recipes_batch_size(stub_compiler, recipe):
    recipe = replace(recipe, data=replace(recipe.data, labels_per_class=32), total_steps=None, total_epochs=4)
    report = preflight(recipe, "v5e:1", kinds=("evaluation",))
    assert report.total_steps == 4 * 320 / 64 and "whole recipe" not in str(report.notes)
    report = preflight(recipe, "v5e:2x2", 8, kinds=("evaluation",))
    assert report.total_steps is None and "batch size is 64" in str(report.notes)


def test_number_of_images_is_known_beside_num_classes(stub_compiler, recipe):
    recipe = replace(recipe, total_steps=None, total_epochs=4)
    report = preflight(recipe, "v5e:1", num_classes=5, kinds=("evaluation",))
    assert report.total_steps == 4 * 50_000 // 64
    elsewhere = replace(recipe, data=replace(recipe.data, dataset="folder:/elsewhere"))
    report = preflight(elsewhere, "v5e:1", num_classes=5, kinds=("evaluation",))
    assert report.total_steps is None and "--num-train-images" in str(report.notes)


def test_largest_batch_by_kind(stub_compiler, recipe, monkeypatch):
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.GlobalAveragePooling2D()])
    report = preflight(model, "v5e:1", 8, find_largest_batch=True)
    assert report.steps[0].required_memory == 9e9
    assert report.as_dict()["largest_batch"] == report.largest_batch == {"inference": 8}
    assert "largest inference batch per device: 8" in str(report)
    # It is divisible by the accumulation steps.
    monkeypatch.setattr(sys.modules[preflight.__module__], "largest_batch", lambda _, granularity: granularity)
    recipe = replace(recipe, optimizer=Optimizer("sgd", accumulation_steps=3, warmup_steps=10))
    report = preflight(recipe, "v5e:1", 3, kinds=("evaluation",), find_largest_batch=True)
    assert report.largest_batch == {"evaluation": 24}


def test_recipes_that_no_tpu_can_run(recipe, monkeypatch):
    with pytest.raises(ValueError, match="8 replicas.*data.batch_size=100"):
        preflight(replace(recipe, data=replace(recipe.data, batch_size=100)), "v5e:2x4")
    with pytest.raises(ValueError, match="optimizer.warmup_steps"):
        preflight(replace(recipe, optimizer=Optimizer(warmup_steps=10**9)), "v5e:2x4")
    with pytest.raises(ValueError, match="mixed_bfloat16"):
        preflight(replace(recipe, run=replace(recipe.run, precision="mixed_float16")))
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax.*run.shard_optimizer=False"):
        preflight(replace(recipe, run=replace(recipe.run, shard_optimizer=True)))
    distillation = Distillation(recipe.architecture, data=recipe.data, optimizer=Optimizer(warmup_steps=1))
    with pytest.raises(ValueError, match="teacher=None"):
        preflight(distillation, "v5e:1")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="TensorFlow"):
        preflight(replace(distillation, teacher="any"), "v5e:1")


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"kinds": "inference"}, "'inference'"),
        ({"kinds": ("training",)}, "compiled"),
        ({"device_batch_size": 0}, "`device_batch_size` .* 0"),
        ({"device_batch_size": None}, "`device_batch_size`"),
    ],
)
def test_invalid_arguments(changes, word):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=word):
        preflight(model, "v5e:1", **{"device_batch_size": 8, **changes})
