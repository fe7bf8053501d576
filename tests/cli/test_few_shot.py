import pytest

from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


def test_accuracy_by_shots(trained_toy, data_dir, tmp_path, capsys):
    model = trained_toy(image_size=8, patch_size=2, num_classes=10)
    model.save(tmp_path / "model.keras")
    options = ["digits", "--data-dir", data_dir, "--test-split", "test[:50]", "--shots", "1", "2"]
    assert main(["few-shot", str(tmp_path / "model.keras"), *options, "--seeds", "0", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("  1 per class: ") and lines[-1].startswith("  2 per class: ") and "±" in lines[-1]
