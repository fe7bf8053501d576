import pytest

from keras_vit.recipes.configs.vtab import GROUPS, TASKS
from keras_vit.recipes.evaluation.vtab import VtabResult, vtab_means


@pytest.mark.parametrize("tasks", [(), ("pets", "dtd")])
def test_table(tasks, run_cli, monkeypatch):
    calls = []

    def run_vtab(weights, folder, *, data_dir, tasks, **scaling):
        calls.append((weights, str(folder), data_dir, tasks))
        top1 = {name: 0.5 + i / 100 for i, name in enumerate(tasks or TASKS, 1)}
        return VtabResult(top1, {} if tasks else vtab_means(top1, GROUPS))

    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.run_vtab", run_vtab)
    options = ["--tasks", *tasks] if tasks else ["--folder", "here", "--data-dir", "there"]
    status, output, _ = run_cli("vtab", "vit/imagenet21k/ViT-B_16", *options)
    lines = output.splitlines()
    folders = ("runs/vtab", None) if tasks else ("here", "there")
    assert status == 0 and calls == [("vit/imagenet21k/ViT-B_16", *folders, tasks)]
    assert f"| {'Pets' if tasks else 'Caltech101'} | natural | 51.0 |" in lines
    assert ("mean" not in output) if tasks else ("| **mean** | all | **60.00** |" in lines and len(lines) == 26)
