import json
from dataclasses import replace

import numpy as np
import pytest
from goldens import golden_file

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.data.vtab import GROUPS, TASKS
from keras_vit.recipes.evaluation.vtab import VtabResult, run_vtab, vtab_means
from keras_vit.recipes.recipe_file import write_recipe

# Table 9 of the paper, ViT-L/16 pre-trained on ImageNet-21k; groups of arXiv 1910.04867.
NATURAL = {"caltech": 90.8, "cifar": 84.1, "dtd": 74.1, "flowers": 99.3, "pets": 92.7, "sun": 61.0, "svhn": 80.9}
SPECIALIZED = {"camelyon": 82.5, "eurosat": 95.6, "resisc": 85.2, "retinopathy": 75.3}
STRUCTURED = {"count": 70.3, "distance": 56.1, "dmlab": 41.9, "location": 74.7, "orientation": 64.9, "kitti": 79.9}
STRUCTURED |= {"azimuth": 30.5, "elevation": 41.7}


@pytest.fixture
def weights(tmp_path):
    return str(golden_file(tmp_path, "vit_jax_token"))


@pytest.fixture
def opened(monkeypatch):
    """Replaces the opening of datasets; returns the names of those that were opened."""
    names = []
    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.open_dataset", lambda data: names.append(data.dataset))
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
    recipe = replace(RECIPES[f"vtab-{task}"], weights=weights)
    (folder / task).mkdir(parents=True)
    write_recipe(recipe, folder / task / "recipe.json")
    (folder / task / file).write_text('{"top1": 0.5}')


def test_means_match_the_papers():
    top1 = {**NATURAL, **SPECIALIZED, **STRUCTURED}
    groups = dict.fromkeys(NATURAL, "natural") | dict.fromkeys(SPECIALIZED, "specialized")
    groups |= dict.fromkeys(STRUCTURED, "structured")
    means = vtab_means(top1, groups)
    assert list(means) == ["natural", "specialized", "structured", "all"]
    assert round(means["all"], 1) == 72.7
    assert means["natural"] == pytest.approx(np.mean(list(NATURAL.values())))
    assert means["structured"] == pytest.approx(np.mean(list(STRUCTURED.values())))
    del top1["pets"]
    with pytest.raises(ValueError, match="Missing: pets. Unknown: cats"):
        vtab_means({**top1, "cats": 1.0}, groups)


def test_all_tasks(runs, weights, tmp_path):
    result = run_vtab(weights, tmp_path / "vtab", data_dir="data")
    assert [recipe.data.dataset for recipe in runs] == [f"vtab/{name}" for name in TASKS]
    assert {(recipe.weights, recipe.data.data_dir) for recipe in runs} == {(weights, "data")}
    assert runs[0].run.folder == str(tmp_path / "vtab" / "caltech101") and runs[0].run.resume
    assert result.means["all"] == pytest.approx(0.6)
    natural = [value for name, value in result.tasks.items() if GROUPS[name] == "natural"]
    assert result.means["natural"] == pytest.approx(sum(natural) / 7)
    content = json.loads((tmp_path / "vtab" / "vtab.json").read_text())
    assert VtabResult(**content) == result


def test_some_tasks_have_no_means(runs, weights, tmp_path):
    assert run_vtab(weights, tmp_path, tasks=("pets", "dtd")) == VtabResult({"pets": 0.51, "dtd": 0.52})
    assert list(json.loads((tmp_path / "vtab.json").read_text())) == ["tasks"] and len(runs) == 2


def test_finished_tasks_of_the_folder_stay(runs, weights, tmp_path):
    write_run(tmp_path, "pets", weights, "metrics.json")
    write_run(tmp_path, "svhn", "other.npz", "metrics.json")
    assert run_vtab(weights, tmp_path, tasks=("dtd",)).tasks == {"dtd": 0.51, "pets": 0.5}
    assert list(json.loads((tmp_path / "vtab.json").read_text())["tasks"]) == ["dtd", "pets"]


def test_unknown_task(runs, tmp_path):
    with pytest.raises(ValueError, match="No task cats in VTAB. Tasks: caltech101"):
        run_vtab("x.npz", tmp_path, tasks=("cats",))
    assert not runs


@pytest.mark.parametrize("name", ["nowhere.npz", "nowhere.keras"])
def test_missing_weights_are_reported_before_the_first_task(runs, opened, tmp_path, name):
    with pytest.raises(OSError, match="There is no"):
        run_vtab(str(tmp_path / name), tmp_path / "vtab")
    assert not runs and not opened and not list(tmp_path.iterdir())


def test_missing_data_is_reported_before_the_first_task(runs, weights, tmp_path, monkeypatch):
    def open_dataset(data):
        if data.dataset == "vtab/dtd":
            raise OSError("no DTD")

    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.open_dataset", open_dataset)
    with pytest.raises(OSError, match="no DTD"):
        run_vtab(weights, tmp_path / "vtab", tasks=("pets", "dtd"))
    assert not runs and not (tmp_path / "vtab").exists()


def test_finished_tasks_need_no_data(runs, weights, opened, tmp_path):
    write_run(tmp_path, "pets", weights, "metrics.json")
    assert run_vtab(weights, tmp_path, tasks=("pets", "dtd")).tasks == {"pets": 0.5, "dtd": 0.51}
    assert opened == ["vtab/dtd"] and len(runs) == 1


@pytest.mark.parametrize("file", ["metrics.json", "step-7.index"])
def test_runs_of_other_weights_are_reported_before_the_first_task(runs, weights, opened, tmp_path, file):
    write_run(tmp_path, "dtd", "other.npz", file)
    with pytest.raises(ValueError, match="recipe.json is .* another run.* differs in weights"):
        run_vtab(weights, tmp_path, tasks=("pets", "dtd"))
    assert not runs and not (tmp_path / "pets").exists()


def test_interrupted_tasks_are_resumed(runs, weights, tmp_path):
    write_run(tmp_path, "dtd", weights, "step-7.index")
    write_run(tmp_path, "pets", "other.npz", "notes.txt")  # neither checkpoints nor metrics: overwritten
    run_vtab(weights, tmp_path, tasks=("pets", "dtd"))
    assert len(runs) == 2


def test_folder_must_not_be_a_file(runs, weights):
    with pytest.raises(ValueError, match="is a file. Choose another folder"):
        run_vtab(weights, weights)
    assert not runs
