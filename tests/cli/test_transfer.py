"""`keras-vit probe` and `vtab`; the numbers of probe and few-shot: tests/journeys/test_pretraining.py."""

import shutil

import pytest

from keras_vit.recipes.configs.vtab import GROUPS, TASKS
from keras_vit.recipes.evaluation.features import cache_folder
from keras_vit.recipes.evaluation.vtab import VtabResult, vtab_means


@pytest.mark.slow
def test_numbers_of_neighbors_above_that_of_images_are_skipped(trained_toy, data_dir, tmp_path, run_cli, monkeypatch):
    trained_toy(image_size=8, patch_size=2, num_classes=10).save(tmp_path / "model.keras")
    arguments = [tmp_path / "model.keras", "--dataset", "digits", "--data-dir", data_dir, "--split", "test[:50]"]
    arguments += ["--train-split", "train[:200]", "--neighbors", 1, 201, "--batch-size", 20]
    monkeypatch.setattr("keras_vit.progress.FIRST_SECONDS", 0)
    status, output, errors = run_cli("probe", *arguments)
    assert not set("\r\b\x1b") & set(output + errors)  # in a pipe: lines, without control codes
    assert errors.splitlines()[-2].startswith("Features of train[:200]: 40 of 200 images, ")
    shutil.rmtree(cache_folder())  # so that they are computed again
    _, again, errors = run_cli("probe", *arguments, "--quiet")
    assert again == output and "Features" not in errors
    lines = output.splitlines()
    assert status == 0 and lines[-4].startswith("200 training and 50 test images of digits, ")
    assert [line.split(":")[0] for line in lines[-3:]] == ["  1 nearest neighbors", "201 nearest neighbors", "linear"]
    assert "skipped" in lines[-2]


@pytest.mark.parametrize("tasks", [(), ("pets", "dtd")])
def test_table(tasks, run_cli, monkeypatch):
    calls = []

    def run_vtab(weights, folder, *, data_dir, tasks, **scaling):
        calls.append((weights, str(folder), data_dir, tasks))
        top1 = {name: 0.5 + i / 100 for i, name in enumerate(tasks or TASKS, 1)}
        return VtabResult(top1, {} if tasks else vtab_means(top1, GROUPS))

    monkeypatch.setattr("keras_vit.recipes.evaluation.vtab.run_vtab", run_vtab)
    options = ["--tasks", *tasks] if tasks else ["--output", "here", "--data-dir", "there"]
    status, output, _ = run_cli("vtab", "vit/imagenet21k/ViT-B_16", *options)
    lines = output.splitlines()
    folders = ("runs/vtab", None) if tasks else ("here", "there")
    assert status == 0 and calls == [("vit/imagenet21k/ViT-B_16", *folders, tasks)]
    assert f"| {'Pets' if tasks else 'Caltech101'} | natural | 51.0 |" in lines
    assert ("mean" not in output) if tasks else ("| **mean** | all | **60.00** |" in lines and len(lines) == 26)
