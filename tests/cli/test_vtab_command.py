import json

import pytest

from keras_vit.recipes import results
from keras_vit.recipes.vtab import GROUPS, TASKS
from keras_vit_cli.main import main


@pytest.fixture
def runs(monkeypatch):
    """Stands for the trainings: remembers their recipes; the accuracy counts up by a hundredth from 0.5."""
    ran = []

    def run(recipe):
        ran.append(recipe)
        return {"accuracy": 0.5 + len(ran) / 100}

    monkeypatch.setattr(results, "run", run)
    return ran


def test_all_tasks_and_the_means_of_their_groups(runs, tmp_path, capsys):
    assert main(["vtab", "B_16.npz", "--folder", str(tmp_path / "vtab")]) == 0
    assert [recipe.data.dataset for recipe in runs] == [f"vtab/{name}" for name in TASKS]
    assert {recipe.weights for recipe in runs} == {"B_16.npz"}
    assert runs[0].run.folder == str(tmp_path / "vtab" / "caltech101") and runs[0].run.resume
    outcome = json.loads((tmp_path / "vtab" / "vtab.json").read_text())
    assert outcome["means"]["all"] == pytest.approx(0.6)
    natural = [value for name, value in outcome["tasks"].items() if GROUPS[name] == "natural"]
    assert outcome["means"]["natural"] == pytest.approx(sum(natural) / 7)
    printed = capsys.readouterr().out
    assert "| Caltech101 | natural | 51.0 |" in printed and "| **mean** | all | **60.00** |" in printed


def test_some_tasks_have_no_means(runs, tmp_path):
    assert main(["vtab", "x.npz", "--folder", str(tmp_path), "--tasks", "pets", "dtd"]) == 0
    assert list(json.loads((tmp_path / "vtab.json").read_text())) == ["tasks"] and len(runs) == 2


def test_an_unknown_task_is_named(runs, tmp_path, capsys):
    assert main(["vtab", "x.npz", "--folder", str(tmp_path), "--tasks", "cats"]) == 1
    assert "No task cats in VTAB. Tasks: caltech101" in capsys.readouterr().err and not runs
