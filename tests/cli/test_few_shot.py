import pytest

from keras_vit.recipes.evaluation.few_shot import FewShot, few_shot
from keras_vit.recipes.recipe import Data
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


def test_accuracy_by_shots(trained_toy, data_dir, tmp_path, capsys):
    model = trained_toy(image_size=8, patch_size=2, num_classes=10)
    model.save(tmp_path / "model.keras")
    options = ["digits", "--data-dir", data_dir, "--test-split", "test[:50]", "--shots", "1", "2"]
    assert main(["few-shot", str(tmp_path / "model.keras"), *options, "--seeds", "0", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    data = Data(dataset="digits", data_dir=data_dir, test_split="test[:50]")
    accuracies = few_shot(model, FewShot(data, shots=(1, 2), seeds=(0, 1)))
    assert accuracies[1] != accuracies[2]
    assert lines[-3] == "1,097 training and 50 test images of digits, 12 features"
    for line, (shots, (first, second)) in zip(lines[-2:], accuracies.items()):
        mean, std = (first + second) / 2, abs(first - second) / 2**0.5
        assert line == f"  {shots} per class: {mean:.2%} ± {std:.2%}"
