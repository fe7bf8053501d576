"""`keras-vit probe` and `few-shot` print the accuracies that their functions return."""

import pytest

from keras_vit.recipes.evaluation.few_shot import FewShot, few_shot
from keras_vit.recipes.recipe import Data
from keras_vit_cli.probe import Probe


@pytest.mark.parametrize("images,counts", [(100, (10, 20, 100)), (99, (10, 20)), (9, (1,))])
def test_default_neighbors_that_do_not_fit_are_skipped(images, counts, capsys):
    assert Probe("model.keras", "digits")._counts(images) == counts
    assert ", ".join(str(count) for count in (10, 20, 100) if count > images) in capsys.readouterr().out


@pytest.mark.slow
def test_accuracies(trained_toy, data_dir, tmp_path, run_cli):
    model = trained_toy(image_size=8, patch_size=2, num_classes=10)
    model.save(tmp_path / "model.keras")
    arguments = [tmp_path / "model.keras", "digits", "--data-dir", data_dir, "--test-split", "test[:50]"]
    arguments += ["--train-split", "train[:200]"]
    status, output, _ = run_cli("few-shot", *arguments, "--shots", 1, 2, "--seeds", 0, 1)
    data = Data(dataset="digits", data_dir=data_dir, train_split="train[:200]", test_split="test[:50]")
    accuracies = few_shot(model, FewShot(data, shots=(1, 2), seeds=(0, 1)))
    lines = output.splitlines()
    assert status == 0 and accuracies[1] != accuracies[2]
    assert lines[-3] == "200 training and 50 test images of digits, 12 features"
    for line, (shots, (first, second)) in zip(lines[-2:], accuracies.items()):
        assert line == f"  {shots} per class: {(first + second) / 2:.2%} ± {abs(first - second) / 2**0.5:.2%}"

    status, output, _ = run_cli("probe", *arguments, "--neighbors", 1, 20)
    lines = output.splitlines()
    assert status == 0 and lines[-4].startswith("200 training and 50 test images of digits, ")
    assert [line.split(":")[0] for line in lines[-3:]] == ["  1 nearest neighbors", " 20 nearest neighbors", "linear"]
    status, _, errors = run_cli("probe", *arguments, "--neighbors", 201)
    assert status == 1 and "201" in errors
