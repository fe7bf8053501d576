import json
import sys
from contextlib import contextmanager
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

import keras_vit
from keras_vit.cli.main import main
from keras_vit.recipes.data.digits import SPLITS
from keras_vit.recipes.preflight import preflight
from keras_vit.recipes.preflight.data_size import data_size
from keras_vit.recipes.preflight.process import CompilerKilled
from keras_vit.recipes.preflight.programs import RecipePrograms
from keras_vit.recipes.recipe import Architecture, Augment, Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.recipe_file import write_recipe

ARCHITECTURE = Architecture("Ti/8", depth=1, width=128, num_heads=2, mlp_dim=256)
RECIPE = Supervised(
    architecture=ARCHITECTURE,
    data=Data(dataset="cifar10", image_size=32, batch_size=64),
    optimizer=Optimizer("adamw", weight_decay=0.1, warmup_steps=10, ema_momentum=0.9),
    run=Run(precision="mixed_bfloat16"),
    total_steps=1_000,
)


@pytest.fixture
def compiler_stub(tmp_path, monkeypatch):
    """Stands for the compiler: a step needs 1 GB, and 1 GB an image; beyond the limit it is out of memory."""

    def compile_step(hlo, topology, replicas):
        module = hlo_pb2.HloModuleProto.FromString(hlo)
        shapes = [list(shape.dimensions) for shape in module.host_program_shape.parameters]
        needed = 1e9 * (1 + next(shape[0] for shape in shapes if shape[1:] == [32, 32, 3]))
        answer = {"seconds": 1.0, "peak_memory": 1e9, "schedule": "", "layers": []}
        if needed > 16e9:
            return {**answer, "error": "RESOURCE_EXHAUSTED: it exceeds available HBM"}
        memory = {"temp": needed, "argument": 0.0, "output": 0.0, "alias": 0.0, "generated_code": 0.0}
        return {**answer, "memory": memory, "flops": 1e12, "bytes": 1e9}

    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))  # its answers are for nobody else
    instead(monkeypatch, compile_step)


def instead(monkeypatch, compile_step):
    """`compile_step` answers in place of the compiler."""

    @contextmanager
    def compiling(*program):
        yield lambda say: compile_step(*program)

    monkeypatch.setattr("keras_vit.recipes.preflight.measure.compiling", compiling)


def test_a_recipe_is_compiled_for_a_slice_of_several_chips():
    report = preflight(RECIPE, "v5e:2x2")
    training, evaluation = report.steps
    assert report.ready and (training.kind, evaluation.kind) == ("training", "evaluation")
    assert training.batch == 16 and report.updates == 1_000
    # Weights, two moments and their running mean, in float32.
    assert training.memory["argument"] > 4 * 4 * report.parameters
    forward = 2 * 16 * 17 * (4 * 128 * 128 + 2 * 128 * 256) + 2 * 16 * 16 * 192 * 128
    assert 2.5 * forward < training.flops < 6 * forward
    assert training.floor == max(training.flops / 197e12, training.bytes / 819e9)
    assert report.chip_hours == pytest.approx(1_000 * training.floor * 4 / 3600)
    assert "images/s, MFU" in str(report) and str(report).endswith("Ready.")
    assert json.loads(json.dumps(report.as_dict()))["steps"][0]["fits"] is True
    again = preflight(RECIPE, "v5e:2x2")  # from the cache
    assert [step.flops for step in again.steps] == [step.flops for step in report.steps]
    assert all(step.seconds == 0 for step in again.steps) and all(step.seconds > 0 for step in report.steps)


@pytest.mark.parametrize("replicas,found", [(1, False), (4, True)])
def test_gradients_are_summed_within_the_program(replicas, found):
    programs = RecipePrograms(RECIPE, 10, 1_000, replicas)
    program = programs.lower("training", 8)
    assert program.problems == () and (b"all-reduce" in program.hlo) is found
    assert "_all_reduce_sum_gradients" not in vars(programs.model.optimizer)  # as it was


@pytest.mark.parametrize(
    "recipe",
    [
        MaskedPatch(architecture=ARCHITECTURE, data=RECIPE.data, run=RECIPE.run),
        replace(RECIPE, data=replace(RECIPE.data, augment=Augment(mixup_alpha=0.2)), loss="sigmoid"),
        replace(RECIPE, optimizer=Optimizer("sgd", accumulation_steps=2, warmup_steps=10)),
    ],
    ids=["masked patches", "mixup", "accumulation"],
)
def test_every_kind_of_training_becomes_a_program(recipe):
    programs = RecipePrograms(recipe, 10, 1_000, 2)
    assert [programs.lower(kind, 8).problems for kind in programs.kinds] == [()] * len(programs.kinds)


def test_a_model_of_the_users():
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, depth=1, width=16, mlp_dim=32, num_heads=2, num_classes=5
    )
    assert [step.kind for step in preflight(model, "v5e:1", 8).steps] == ["inference"]
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    report = preflight(model, "v3:1", 4, kinds=("training",))
    assert report.ready and report.steps[0].limit == 16 * 2**30 and report.topology.replicas == 2
    assert any("17 tokens waste 87%" in note for note in report.notes)
    with pytest.raises(ValueError, match="Say the batch"):
        preflight(model, "v5e:1")


def test_a_step_is_traced_while_another_compiles(monkeypatch, tmp_path):
    happened = []

    @contextmanager
    def compiling(*program):
        happened.append("compiler started")
        yield lambda say: happened.append("waited") or {"seconds": 1, "peak_memory": 1, "schedule": "", "error": "Oh"}
        happened.append("compiler gone")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras_vit.recipes.preflight.measure.compiling", compiling)
    preflight(RECIPE, "v5e:1", 8, say=lambda text: happened.append(text.partition(" step")[0]))
    assert happened[1:] == [
        *("tracing the training", "compiler started", "tracing the evaluation", "compiler started"),
        *("waited", "waited", "compiler gone", "compiler gone"),
    ]


@pytest.mark.parametrize("room,reports", [(1, 2), (0, None)])
def test_compilers_that_have_no_room_together_run_alone(room, reports, monkeypatch, tmp_path):
    running = []

    @contextmanager
    def compiling(*program):
        running.append(program)
        crowded = len(running) > room

        def wait(say):
            if crowded or len(running) > room:
                raise CompilerKilled("It was killed.")
            return {"seconds": 1.0, "peak_memory": 1.0, "schedule": "", "error": "INTERNAL: Oh"}

        try:
            yield wait
        finally:
            running.remove(program)

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras_vit.recipes.preflight.measure.compiling", compiling)
    if reports:
        assert [step.problems for step in preflight(RECIPE, "v5e:1", 8).steps] == [("INTERNAL: Oh",)] * reports
    else:
        with pytest.raises(ChildProcessError, match="was killed"):
            preflight(RECIPE, "v5e:1", 8)


def test_a_batch_that_cannot_fit_gets_the_compilers_reason():
    model = keras.Sequential([keras.Input((1024, 1024)), keras.layers.Dense(1024), keras.layers.Dense(1024)])
    report = preflight(model, "v5e:1", 8192)
    assert not report.ready and "RESOURCE_EXHAUSTED" in report.steps[0].problems[0]
    assert "exceeds available HBM" in str(report) and str(report).endswith("Not ready.")


def test_a_step_that_calls_the_host_is_not_compiled():
    host = keras.layers.Lambda(lambda x: tf.numpy_function(abs, [x], tf.float32), output_shape=(4,), name="host")
    model = keras.Sequential([keras.Input((4,)), host])
    report = preflight(model, "v5e:1", 8)
    assert "in sequential/host calls back to the host" in str(report).replace("sequential_1", "sequential")


def test_sizes_of_data_sets_that_are_not_here(tmp_path):
    assert data_size(Data(dataset="imagenet2012")) == (1_000, 1_281_167)
    assert data_size(Data(dataset="vtab/cifar100")) == (100, 1_000)
    assert data_size(Data(dataset="digits")) == (10, SPLITS["train"])
    for name in ("train/cats", "train/dogs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.png").write_bytes(tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy())
    assert data_size(Data(dataset=f"folder:{tmp_path}")) == (2, 2)
    with pytest.raises(ValueError, match="'food101' are not known here. Say --classes"):
        data_size(Data(dataset="food101"))


def test_what_the_whole_recipe_takes_is_of_its_own_batch(compiler_stub):
    data = replace(RECIPE.data, labels_per_class=32)
    recipe = replace(RECIPE, data=data, total_steps=None, total_epochs=4)
    report = preflight(recipe, "v5e:1", kinds=("evaluation",))
    assert report.updates == 4 * 320 / 64 and "whole recipe" not in str(report.notes)
    report = preflight(recipe, "v5e:2x2", 8, kinds=("evaluation",))
    assert report.updates is None and "An update of the recipe is of 64 images" in str(report.notes)


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"kinds": "inference"}, "must be a tuple of inference here; .* Received: 'inference'"),
        ({"kinds": ("training",)}, "a model has a training step if it is compiled"),
        ({"batch": 0}, "at least one image in a step. Received: batch=0"),
    ],
)
def test_steps_that_cannot_be_are_refused(changes, message):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=message):
        preflight(model, "v5e:1", **{"batch": 8, **changes})


def test_models_without_weights_or_a_size_are_refused():
    with pytest.raises(ValueError, match="has no weights yet. Build it, or call it on a batch"):
        preflight(keras.Sequential([keras.layers.Dense(2)]), "v5e:1", 8)
    anywhere = keras.Sequential([keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D()])
    with pytest.raises(ValueError, match=r"one shape. .* takes \(None, None, 3\): make it for one size"):
        preflight(anywhere, "v5e:1", 8)


@pytest.mark.parametrize("error,times", [("INTERNAL: no space left", 2), ("RESOURCE_EXHAUSTED: HBM", 1)])
def test_only_errors_of_the_program_itself_are_kept(error, times, compiler_stub, monkeypatch):
    asked = []

    def failing(hlo, *others):
        asked.append(hlo)
        return {"seconds": 1.0, "peak_memory": 1e9, "schedule": "", "error": error}

    instead(monkeypatch, failing)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    for _ in range(2):
        assert not preflight(model, "v5e:1", 8).ready
    assert len(asked) == times


def test_the_largest_batch_can_be_cut_into_the_parts_of_the_recipe(compiler_stub, monkeypatch):
    monkeypatch.setattr(sys.modules[preflight.__module__], "largest_batch", lambda measure, step: step)  # the first
    recipe = replace(RECIPE, optimizer=Optimizer("sgd", accumulation_steps=3, warmup_steps=10))
    report = preflight(recipe, "v5e:1", 3, kinds=("evaluation",), find_largest=True)
    assert report.largest == {"evaluation": 24}


def test_the_largest_batch_is_looked_for_by_kind(compiler_stub):
    report = preflight(RECIPE, "v5e:1", 8, kinds=("evaluation",), find_largest=True)
    assert report.largest == {"evaluation": 8} and report.steps[0].needed == 9e9
    assert "evaluation" in str(report) and report.as_dict()["largest"] == {"evaluation": 8}


def test_command(compiler_stub, tmp_path, capsys):
    write_recipe(RECIPE, tmp_path / "recipe.json")
    arguments = ["preflight", str(tmp_path / "recipe.json"), "--topology", "v5e:1", "--data.batch-size", "8"]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    assert "8 images a device, 8 in all" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ready"] and report["topology"]["name"] == "v5e:1" and len(report["steps"]) == 2
    assert main(["preflight", "imagenet1k-b16", "--topology", "v5e:2x4", "--data.batch-size", "100"]) == 1
    assert "A batch of 100 does not go into 8 replicas" in capsys.readouterr().err
    assert main(["preflight", "--list"]) == 0
    assert "v6e" in capsys.readouterr().out
