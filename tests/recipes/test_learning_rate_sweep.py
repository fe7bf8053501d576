import json
from dataclasses import replace

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.learning_rate_sweep import Sweep, markdown_table, sweep
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit.recipes.sweep_plan import tuning_and_held_out


@pytest.fixture
def plan(data_dir, tmp_path):
    recipe = Supervised(
        architecture=Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3),
        data=Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False),
        optimizer=Optimizer(name="adamw", warmup_steps=1),
        run=Run(folder=str(tmp_path / "sweep"), steps_per_execution=5),
        total_steps=5,
    )
    return Sweep(recipe, (0.0, 0.01), "train[:90%]", "train[90%:]", seeds=(0, 1))


@pytest.mark.slow
def test_best_learning_rate_is_trained_on_all_images(plan, tmp_path):
    result = sweep(replace(plan, learning_rates=(0.01,), seeds=(1,)))
    assert list(result["held_out"]) == [0.01] and result["learning_rate"] == 0.01
    assert result["test"] == {1: result["mean"]}
    tuned, final = (
        json.loads((tmp_path / "sweep" / name / "recipe.json").read_text()) for name in ("rate-0.01", "seed-1")
    )
    assert tuned["data"]["train_split"] == "train[:90%]" and tuned["data"]["test_split"] == "train[90%:]"
    assert final["data"]["train_split"] == "train" and final["data"]["test_split"] == "test"
    assert final["optimizer"]["learning_rate"] == 0.01 and final["run"]["seed"] == 1
    text = markdown_table(result)
    assert "| seed 1, test |" in text and "±" in text
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["learning_rate"] == 0.01


def test_finished_runs_are_not_repeated(plan, tmp_path, monkeypatch):
    metrics_of = {"rate-0": 0.2, "rate-0.01": 0.5, "seed-0": 0.6, "seed-1": 0.8}
    ran = []

    def run(recipe):
        name = recipe.run.folder.rpartition("/")[2]
        ran.append(name)
        return {"top1": metrics_of[name]}

    monkeypatch.setattr(run_recipe, "run", run)
    finished = tmp_path / "sweep" / "rate-0.01"
    held_out = replace(plan.recipe.data, train_split="train[:90%]", validation_split="train[90%:]")
    recipe = replace(
        plan.recipe,
        data=replace(held_out, test_split="train[90%:]"),
        optimizer=replace(plan.recipe.optimizer, learning_rate=0.01),
    )
    finished.mkdir(parents=True)
    write_recipe(recipe, finished / "recipe.json")
    (finished / "metrics.json").write_text('{"top1": 0.1}')
    result = sweep(plan)
    assert ran == ["rate-0", "seed-0", "seed-1"] and result["learning_rate"] == 0.0
    assert result["mean"] == pytest.approx(0.7) and result["std"] == pytest.approx(0.02**0.5)


def test_diverged_learning_rates_are_not_chosen(plan, tmp_path, monkeypatch):
    def run(recipe):
        if recipe.optimizer.learning_rate:
            raise FloatingPointError("NaN")
        return {"top1": 0.5}

    (tmp_path / "sweep").mkdir()
    monkeypatch.setattr(run_recipe, "run", run)
    result = sweep(plan)
    assert result["held_out"] == {0.0: 0.5, 0.01: None} and result["learning_rate"] == 0.0
    assert "| learning rate 0.01, held out | diverged |" in markdown_table(result)
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["held_out"]["0.01"] is None
    with pytest.raises(FloatingPointError, match="All learning rates diverged"):
        sweep(replace(plan, learning_rates=(0.01,)))
    with pytest.raises(ValueError, match="no metric 'top5', only top1"):
        sweep(replace(plan, metric="top5"))


def test_finished_runs_with_nan_have_diverged(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(run_recipe, "run", lambda recipe: {"top1": 0.5})
    monkeypatch.setattr(run_recipe, "check_resumable", lambda recipe: None)
    for name in ("rate-0.01", "rate-nothing"):
        (tmp_path / "sweep" / name).mkdir(parents=True)
        (tmp_path / "sweep" / name / "metrics.json").write_text('{"loss": NaN, "top1": 1.0}')  # of an older version
    assert sweep(plan)["held_out"] == {0.0: 0.5, 0.01: None}


@pytest.mark.parametrize(
    "splits,expected",
    [
        (("train", None, "test"), ("train[:98%]", "train[98%:]")),
        (("train[:99%]", "train[99%:]", "validation"), ("train[:99%]", "train[99%:]")),
        (("train", "test", "test"), ("train[:98%]", "train[98%:]")),  # test images do not choose the learning rate
    ],
)
def test_held_out_images_are_of_the_recipe(plan, splits, expected):
    names = ("train_split", "validation_split", "test_split")
    data = replace(plan.recipe.data, **dict(zip(names, splits, strict=True)))
    plan = Sweep(replace(plan.recipe, data=data))
    assert tuning_and_held_out(plan) == expected


@pytest.mark.parametrize(
    "change,message",
    [
        (
            lambda plan: Sweep(replace(plan.recipe, data=Data(train_split="train[:80%]", validation_split=None))),
            "Set both tuning_split and held_out_split.* is train.:80%.,.*--held-out-split",
        ),
        (lambda plan: replace(plan, held_out_split=None), "Received: train.:90%. and None"),
        (lambda plan: replace(plan, learning_rates=(0.1, -0.1)), "`learning_rates` must be finite and at least 0"),
        (lambda plan: replace(plan, learning_rates=(float("nan"),)), "`learning_rates` must be finite and at least 0"),
        (lambda plan: replace(plan, seeds=(0, -1)), "run.seed must be in"),
        (lambda plan: replace(plan, recipe=replace(plan.recipe, run=Run())), "set run.folder"),
        (lambda plan: replace(plan, learning_rates=()), "requires learning_rates and seeds"),
        (lambda plan: replace(plan, metric="loss"), "must be one of top1, top5. Received: 'loss'"),
    ],
)
def test_invalid_plans(plan, change, message):
    with pytest.raises(ValueError, match=message):
        sweep(change(plan))
