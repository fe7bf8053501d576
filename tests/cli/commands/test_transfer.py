"""`keras-vit probe` and `vtab`; the numbers of probe and few-shot: tests/journeys/test_pretraining.py."""

import shutil

import pytest

from keras_vit.recipes.evaluation.features import cache_folder


@pytest.mark.slow
def test_numbers_of_neighbors_above_that_of_images_are_skipped(trained_toy, data_dir, tmp_path, run_cli, monkeypatch):
    trained_toy(image_size=8, patch_size=2, num_classes=10).save(tmp_path / "model.keras")
    arguments = [tmp_path / "model.keras", "--dataset", "digits", "--data-dir", data_dir, "--split", "test[:50]"]
    arguments += ["--train-split", "train[:100]", "--neighbors", 1, 101, "--batch-size", 20]
    monkeypatch.setattr("keras_vit.progress.FIRST_SECONDS", 0)
    status, output, errors = run_cli("probe", *arguments)
    assert not set("\r\b\x1b") & set(output + errors)  # in a pipe: lines, without control codes
    assert errors.splitlines()[-2].startswith("Features of train[:100]: 40 of 100 images, ")
    shutil.rmtree(cache_folder())  # so that they are computed again
    _, again, errors = run_cli("probe", *arguments, "--quiet")
    lines = output.splitlines()
    assert again == output and "Features" not in errors
    assert status == 0 and lines[-4].startswith("100 training and 50 test images of digits, ")
    assert [line.split(":")[0] for line in lines[-3:]] == ["  1 nearest neighbors", "101 nearest neighbors", "linear"]
    assert "skipped" in lines[-2]
