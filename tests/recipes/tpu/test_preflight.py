import json
from dataclasses import replace

import keras
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.recipes.recipe import Architecture, Augment, Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit.recipes.tpu import preflight
from keras_vit.recipes.tpu.data_size import data_size
from keras_vit.recipes.tpu.programs import RecipePrograms
from keras_vit_cli.main import main

ARCHITECTURE = Architecture("Ti/8", depth=1, width=128, num_heads=2, mlp_dim=256)
RECIPE = Supervised(
    architecture=ARCHITECTURE,
    data=Data(dataset="cifar10", image_size=32, batch_size=64),
    optimizer=Optimizer("adamw", weight_decay=0.1, warmup_steps=10, ema_momentum=0.9),
    run=Run(precision="mixed_bfloat16"),
    total_steps=1_000,
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


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


def test_sizes_of_data_sets_that_are_not_here():
    assert data_size(Data(dataset="imagenet2012")) == (1_000, 1_281_167)
    assert data_size(Data(dataset="vtab/cifar100")) == (100, 1_000)
    with pytest.raises(ValueError, match="'food101' are not known here. Say --classes"):
        data_size(Data(dataset="food101"))


def test_command(tmp_path, capsys):
    write_recipe(RECIPE, tmp_path / "recipe.json")
    arguments = ["preflight", str(tmp_path / "recipe.json"), "--topology", "v5e:1", "--data.batch-size", "8"]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    assert "8 pictures a device, 8 in all" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ready"] and report["topology"]["name"] == "v5e:1" and len(report["steps"]) == 2
    assert main(["preflight", "imagenet1k-b16", "--topology", "v5e:2x4", "--data.batch-size", "100"]) == 1
    assert "A batch of 100 does not go into 8 replicas" in capsys.readouterr().err
    assert main(["preflight", "--list"]) == 0
    assert "v6e" in capsys.readouterr().out
