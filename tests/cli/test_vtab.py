import pytest

from keras_vit.recipes.data.vtab import GROUPS, TASKS
from keras_vit.recipes.evaluation.vtab import VtabResult, vtab_means
from keras_vit_cli.main import main


@pytest.fixture
def calls(monkeypatch):
    """Replaces `run_vtab`; returns its arguments."""
    calls = []

    def run_vtab(weights, folder, *, data_dir, tasks, **scaling):
        calls.append((weights, str(folder), data_dir, tasks))
        top1 = {name: 0.5 + i / 100 for i, name in enumerate(tasks or TASKS, 1)}
        return VtabResult(top1, {} if tasks else vtab_means(top1, GROUPS))

    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.run_vtab", run_vtab)
    return calls


def test_table_of_all_tasks(calls, capsys):
    assert main(["vtab", "vit/imagenet21k/ViT-B_16", "--folder", "here", "--data-dir", "there"]) == 0
    assert calls == [("vit/imagenet21k/ViT-B_16", "here", "there", ())]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 19 + 4
    assert "| Caltech101 | natural | 51.0 |" in lines and "| **mean** | all | **60.00** |" in lines


def test_table_of_some_tasks(calls, capsys):
    assert main(["vtab", "vit/imagenet21k/ViT-B_16", "--tasks", "pets", "dtd"]) == 0
    assert calls == [("vit/imagenet21k/ViT-B_16", "runs/vtab", None, ("pets", "dtd"))]
    printed = capsys.readouterr().out
    assert "| Pets | natural | 51.0 |" in printed and "mean" not in printed
