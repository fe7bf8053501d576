import json
from dataclasses import replace

import pytest
from goldens import golden_file

from keras_vit_cli.main import main
from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.data.vtab import GROUPS, TASKS
from keras_vit.recipes.recipe_file import write_recipe


@pytest.fixture
def weights(tmp_path):
    return str(golden_file(tmp_path, "vit_jax_token"))


@pytest.fixture
def opened(monkeypatch):
    """Stands for the data sets: remembers which were opened."""
    names = []
    monkeypatch.setattr("keras_vit.recipes.data.open_dataset", lambda data: names.append(data.dataset))
    return names


@pytest.fixture
def runs(monkeypatch, opened):
    """Stands for the trainings: remembers their recipes; the accuracy counts up by a hundredth from 0.5."""
    ran = []

    def run(recipe):
        ran.append(recipe)
        return {"top1": 0.5 + len(ran) / 100}

    monkeypatch.setattr(run_recipe, "run", run)
    return ran


def test_all_tasks_and_the_means_of_their_groups(runs, weights, tmp_path, capsys):
    assert main(["vtab", weights, "--folder", str(tmp_path / "vtab")]) == 0
    assert [recipe.data.dataset for recipe in runs] == [f"vtab/{name}" for name in TASKS]
    assert {recipe.weights for recipe in runs} == {weights}
    assert runs[0].run.folder == str(tmp_path / "vtab" / "caltech101") and runs[0].run.resume
    outcome = json.loads((tmp_path / "vtab" / "vtab.json").read_text())
    assert outcome["means"]["all"] == pytest.approx(0.6)
    natural = [value for name, value in outcome["tasks"].items() if GROUPS[name] == "natural"]
    assert outcome["means"]["natural"] == pytest.approx(sum(natural) / 7)
    printed = capsys.readouterr().out
    assert "| Caltech101 | natural | 51.0 |" in printed and "| **mean** | all | **60.00** |" in printed


def test_some_tasks_have_no_means(runs, weights, tmp_path):
    assert main(["vtab", weights, "--folder", str(tmp_path), "--tasks", "pets", "dtd"]) == 0
    assert list(json.loads((tmp_path / "vtab.json").read_text())) == ["tasks"] and len(runs) == 2


def test_an_unknown_task_is_named(runs, tmp_path, capsys):
    assert main(["vtab", "x.npz", "--folder", str(tmp_path), "--tasks", "cats"]) == 1
    assert "No task cats in VTAB. Tasks: caltech101" in capsys.readouterr().err and not runs


def test_weights_are_looked_for_before_the_first_task(runs, opened, tmp_path, capsys):
    for name in ("nowhere.npz", "nowhere.keras"):
        assert main(["vtab", str(tmp_path / name), "--folder", str(tmp_path / "vtab")]) == 1
        assert "There is no" in capsys.readouterr().err
    assert not runs and not opened and not list(tmp_path.iterdir())


def test_data_is_looked_for_before_the_first_task(runs, weights, tmp_path, capsys, monkeypatch):
    def open_dataset(data):
        if data.dataset == "vtab/dtd":
            raise OSError("no DTD")

    monkeypatch.setattr("keras_vit.recipes.data.open_dataset", open_dataset)
    assert main(["vtab", weights, "--folder", str(tmp_path / "vtab"), "--tasks", "pets", "dtd"]) == 1
    assert "no DTD" in capsys.readouterr().err and not runs and not (tmp_path / "vtab").exists()


def leave_a_run(folder, task, weights, file):
    """What a run of a task leaves, as far as it is looked at: whose it is, and a file that says how far it came."""
    recipe = replace(RECIPES[f"vtab-{task}"], weights=weights)
    (folder / task).mkdir(parents=True)
    write_recipe(recipe, folder / task / "recipe.json")
    (folder / task / file).write_text('{"top1": 0.5}')


def test_a_finished_task_needs_no_data(runs, weights, opened, tmp_path):
    leave_a_run(tmp_path, "pets", weights, "metrics.json")
    assert main(["vtab", weights, "--folder", str(tmp_path), "--tasks", "pets", "dtd"]) == 0
    assert opened == ["vtab/dtd"] and len(runs) == 1


@pytest.mark.parametrize("file", ["metrics.json", "step-7.index"])
def test_folders_of_other_weights_are_said_before_the_first_task(runs, weights, opened, tmp_path, capsys, file):
    leave_a_run(tmp_path, "dtd", "other.npz", file)
    assert main(["vtab", weights, "--folder", str(tmp_path), "--tasks", "pets", "dtd"]) == 1
    assert "recipe.json is the recipe of another run; it differs in weights." in capsys.readouterr().err
    assert not runs and not (tmp_path / "pets").exists()


def test_a_task_that_was_broken_off_goes_on(runs, weights, tmp_path):
    leave_a_run(tmp_path, "dtd", weights, "step-7.index")
    leave_a_run(tmp_path, "pets", "other.npz", "notes.txt")  # neither checkpoints nor figures: it is written over
    assert main(["vtab", weights, "--folder", str(tmp_path), "--tasks", "pets", "dtd"]) == 0
    assert len(runs) == 2


def test_a_file_is_no_folder_for_runs(runs, weights, capsys):
    assert main(["vtab", weights, "--folder", weights]) == 1
    assert "is a file. Name a folder with --folder." in capsys.readouterr().err and not runs
