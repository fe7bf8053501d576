import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.processes import workers
from keras_vit.recipes.recipe import Run
from keras_vit.recipes.recipe.file import write_recipe
from keras_vit.recipes.runs.learning_rate_sweep import Sweep, markdown_table, sweep, tuning_and_held_out


@pytest.fixture
def plan(supervised, tmp_path):
    recipe = replace(supervised, run=Run(folder=str(tmp_path)))
    return Sweep(recipe, (0.0, 0.01), "train[:90%]", "train[90%:]", seeds=(0, 1))


@pytest.fixture
def runs(monkeypatch):
    """Replaces training; returns the recipes by name of their folder. A result that is an error is raised."""
    ran, results = {}, {"rate-0": 0.2, "rate-0.01": 0.5, "seed-0": 0.6, "seed-1": 0.8}

    def run(recipe):
        name = recipe.run.folder.rpartition("/")[2]
        ran[name] = recipe
        if isinstance(results[name], Exception):
            raise results[name]
        return {"top1": results[name], "images": 40}

    monkeypatch.setattr(run_recipe, "run", run)
    return ran, results


def test_best_learning_rate_is_trained_on_all_images(plan, runs, tmp_path):
    result, (ran, _) = sweep(plan), runs
    assert result["held_out"] == {0.0: 0.2, 0.01: 0.5} and result["learning_rate"] == 0.01
    assert result["test"] == {0: 0.6, 1: 0.8} and result["mean"] == pytest.approx(0.7)
    assert result["std"] == pytest.approx(0.02**0.5)
    assert list(ran) == ["rate-0", "rate-0.01", "seed-0", "seed-1"]
    tuned, final = ran["rate-0.01"], ran["seed-1"]
    assert tuned.data.train_split == "train[:90%]"
    assert tuned.data.validation_split == tuned.data.test_split == "train[90%:]"
    assert (final.data, final.optimizer.learning_rate, final.run.seed) == (plan.recipe.data, 0.01, 1)
    table = markdown_table(result)
    assert final.run.resume and "| seed 1, test | 80.00% |" in table
    assert "| learning rate 0, held out | 20.0 % [10.5, 34.8], 8 of 40 images |" in table and "chance" not in table
    equal = markdown_table({**result, "held_out": {0.0: 0.4, 0.01: 0.5, 0.1: None}})
    assert equal.endswith("On 40 held-out images, 0 may be as good: the difference is within chance.")
    assert json.loads((tmp_path / "sweep.json").read_text())["learning_rate"] == 0.01
    single = sweep(replace(plan, seeds=(1,)))
    assert single["test"] == {1: single["mean"]} and single["std"] == 0.0 and "±" not in markdown_table(single)


def test_only_the_chief_writes_the_table(plan, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "Workers", lambda strategy: SimpleNamespace(chief=False))
    assert sweep(plan)["learning_rate"] == 0.01 and not (tmp_path / "sweep.json").exists()


def test_finished_runs_are_not_repeated(plan, runs, tmp_path):
    sweep(plan)
    ran, _ = runs
    (tmp_path / "rate-0.01").mkdir()
    write_recipe(ran.pop("rate-0.01"), tmp_path / "rate-0.01" / "recipe.json")
    (tmp_path / "rate-0.01" / "metrics.json").write_text('{"top1": 0.1, "images": 40}')
    ran.clear()
    assert sweep(plan)["learning_rate"] == 0.0 and list(ran) == ["rate-0", "seed-0", "seed-1"]


def test_diverged_learning_rates_are_not_chosen(plan, runs, tmp_path, monkeypatch):
    _, results = runs
    results["rate-0.01"] = FloatingPointError("NaN")
    result = sweep(plan)
    assert result["held_out"] == {0.0: 0.2, 0.01: None} and result["learning_rate"] == 0.0
    assert "| learning rate 0.01, held out | diverged |" in markdown_table(result)
    assert json.loads((tmp_path / "sweep.json").read_text())["held_out"]["0.01"] is None
    with pytest.raises(FloatingPointError, match="0.01"):
        sweep(replace(plan, learning_rates=(0.01,)))
    with pytest.raises(ValueError, match="'top5', only top1"):
        sweep(replace(plan, metric="top5"))
    # A metrics.json of an older version, with NaN.
    monkeypatch.setattr(run_recipe, "check_resumable", lambda recipe: None)
    (tmp_path / "rate-0.01").mkdir()
    (tmp_path / "rate-0.01" / "metrics.json").write_text('{"loss": NaN, "top1": 1.0}')
    assert sweep(plan)["held_out"] == {0.0: 0.2, 0.01: None}


@pytest.mark.parametrize(
    "splits,expected",
    [
        (("train", None, "test"), ("train[:98%]", "train[98%:]")),
        (("train[:99%]", "train[99%:]", "validation"), ("train[:99%]", "train[99%:]")),
        (("train", "test", "test"), ("train[:98%]", "train[98%:]")),  # test images do not choose the learning rate
        (("train[:80%]", None, "test"), None),
    ],
)
def test_held_out_images_are_of_the_recipe(plan, splits, expected):
    names = ("train_split", "validation_split", "test_split")
    plan = Sweep(replace(plan.recipe, data=replace(plan.recipe.data, **dict(zip(names, splits, strict=True)))))
    if expected:
        assert tuning_and_held_out(plan) == expected
    else:
        with pytest.raises(ValueError, match="tuning_split=None, held_out_split=None"):
            sweep(plan)


def test_sweeps_that_cannot_start(plan):
    with pytest.raises(ValueError, match="held_out_split=None"):
        sweep(replace(plan, held_out_split=None))
    with pytest.raises(ValueError, match="run.folder"):
        sweep(replace(plan, recipe=replace(plan.recipe, run=Run())))
