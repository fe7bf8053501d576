import json
from dataclasses import replace

import numpy as np
import pytest
from goldens import golden_file

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.configs.vtab import GROUPS, TASKS
from keras_vit.recipes.evaluation.vtab import VtabResult, run_vtab, vtab_means
from keras_vit.recipes.recipe.file import write_recipe

# Table 9 of the paper, ViT-L/16 pre-trained on ImageNet-21k; groups of arXiv 1910.04867.
NATURAL = {"caltech": 90.8, "cifar": 84.1, "dtd": 74.1, "flowers": 99.3, "pets": 92.7, "sun": 61.0, "svhn": 80.9}
SPECIALIZED = {"camelyon": 82.5, "eurosat": 95.6, "resisc": 85.2, "retinopathy": 75.3}
STRUCTURED = {"count": 70.3, "distance": 56.1, "dmlab": 41.9, "location": 74.7, "orientation": 64.9, "kitti": 79.9}
STRUCTURED |= {"azimuth": 30.5, "elevation": 41.7}
TOP1 = {**NATURAL, **SPECIALIZED, **STRUCTURED}


@pytest.fixture
def weights(tmp_path):
    return str(golden_file(tmp_path, "vit_jax_token"))


@pytest.fixture
def opened(monkeypatch):
    """Replaces the opening of datasets; returns the names of those that were opened. The folder "missing" has none."""
    names = []

    def open_dataset(data):
        names.append(data.dataset)
        if data.data_dir == "missing":
            raise OSError("no data")

    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.open_dataset", open_dataset)
    return names


@pytest.fixture
def runs(monkeypatch, opened):
    """Replaces training; returns the recipes that were run. Accuracies are 0.51, 0.52, ..."""
    ran = []

    def run(recipe):
        ran.append(recipe)
        return {"top1": 0.5 + len(ran) / 100}

    monkeypatch.setattr(run_recipe, "run", run)
    return ran


def write_run(folder, task, weights, file):
    """Writes what identifies the run of a task, and a file that shows how far it got."""
    (folder / task).mkdir(parents=True)
    write_recipe(replace(RECIPES[f"vtab-{task}"], weights=weights), folder / task / "recipe.json")
    (folder / task / file).write_text('{"top1": 0.5}')


def test_means_match_the_papers():
    names = ("natural", NATURAL), ("specialized", SPECIALIZED), ("structured", STRUCTURED)
    groups = {task: name for name, tasks in names for task in tasks}
    means = vtab_means(TOP1, groups)
    assert list(means) == ["natural", "specialized", "structured", "all"] and round(means["all"], 1) == 72.7
    for name, tasks in names:
        assert means[name] == pytest.approx(np.mean(list(tasks.values())))


def test_all_tasks(runs, weights, tmp_path):
    result = run_vtab(weights, tmp_path / "vtab", data_dir="data")
    assert [recipe.data.dataset for recipe in runs] == [f"vtab/{name}" for name in TASKS]
    assert {(recipe.weights, recipe.data.data_dir) for recipe in runs} == {(weights, "data")}
    assert runs[0].run.folder == str(tmp_path / "vtab" / "caltech101") and runs[0].run.resume
    assert result.means["all"] == pytest.approx(0.6)
    natural = [value for name, value in result.tasks.items() if GROUPS[name] == "natural"]
    assert result.means["natural"] == pytest.approx(sum(natural) / 7)
    assert VtabResult(**json.loads((tmp_path / "vtab" / "vtab.json").read_text())) == result


def test_finished_tasks_of_the_folder_stay_and_some_tasks_have_no_means(runs, weights, opened, tmp_path):
    write_run(tmp_path, "pets", weights, "metrics.json")
    write_run(tmp_path, "svhn", "other.npz", "metrics.json")
    write_run(tmp_path, "sun397", weights, "step-7.index")  # interrupted: resumed
    write_run(tmp_path, "eurosat", "other.npz", "notes.txt")  # neither checkpoints nor metrics: overwritten
    tasks = ("dtd", "sun397", "eurosat")
    expected = {"dtd": 0.51, "sun397": 0.52, "eurosat": 0.53, "pets": 0.5}
    assert run_vtab(weights, tmp_path, tasks=tasks) == VtabResult(expected)
    assert json.loads((tmp_path / "vtab.json").read_text()) == {"tasks": expected}
    opened.clear()
    assert run_vtab(weights, tmp_path, tasks=("pets",)).tasks["pets"] == 0.5
    assert len(runs) == 3 and not opened  # a finished task needs no data


def test_the_other_tasks_run_when_one_fails(runs, weights, tmp_path, monkeypatch):
    def run(recipe):
        if recipe.data.dataset == "vtab/pets":
            raise FloatingPointError("diverged")
        if recipe.data.dataset == "vtab/svhn":
            raise KeyboardInterrupt
        return {"top1": 0.25}

    monkeypatch.setattr(run_recipe, "run", run)
    with pytest.raises(ValueError, match="1 of 3 tasks failed.* pets: FloatingPointError: diverged"):
        run_vtab(weights, tmp_path, tasks=("dtd", "pets", "eurosat"))
    assert json.loads((tmp_path / "vtab.json").read_text()) == {"tasks": {"dtd": 0.25, "eurosat": 0.25}}
    with pytest.raises(KeyboardInterrupt):
        run_vtab(weights, tmp_path, tasks=("svhn", "dtd"))


@pytest.mark.parametrize(
    "changes,error,message",
    [
        ({"tasks": ("cats",)}, ValueError, "cats .*caltech101"),
        ({"data_dir": "missing"}, OSError, "no data"),
        ({"folder": "{}/vit_jax_token.npz"}, ValueError, "is a file"),
    ],
)
def test_mistakes_are_reported_before_the_first_task(runs, weights, tmp_path, changes, error, message):
    changes = {name: value.format(tmp_path) if "{" in value else value for name, value in changes.items()}
    with pytest.raises(error, match=message):
        run_vtab(**{"weights": weights, "folder": tmp_path / "vtab", **changes})
    assert not runs and not (tmp_path / "vtab").exists()


@pytest.mark.parametrize("file", ["metrics.json", "step-7.index"])
def test_runs_of_other_weights_are_reported_before_the_first_task(runs, weights, tmp_path, file):
    write_run(tmp_path, "dtd", "other.npz", file)
    with pytest.raises(ValueError, match="another run.* weights"):
        run_vtab(weights, tmp_path, tasks=("pets", "dtd"))
    assert not runs and not (tmp_path / "pets").exists()
