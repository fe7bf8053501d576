"""Exports on a full disk end in one sentence, and leave nothing half-written."""

import os

import pytest
from full_disk import full_disk

from keras_vit.export import write_saved_model, write_tflite
from keras_vit.weights import save

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("max_bytes", [100, 5_000, 30_000], ids=["assets", "variables", "graph"])
def test_saved_model(trained_toy, tmp_path, max_bytes):
    with pytest.raises(OSError, match=r"^\S+/vit cannot be written: [^{\n]*File too large. Check the free space"):
        with full_disk(max_bytes):
            write_saved_model(trained_toy(depth=1), tmp_path / "vit")
    assert not os.listdir(tmp_path)


def test_tflite(trained_toy, tmp_path):
    with pytest.raises(OSError, match="for temporary files cannot be written: .*File too large. Free some space"):
        with full_disk(5_000):
            write_tflite(trained_toy(depth=1), tmp_path, ("float32",))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras"])
def test_weights(trained_toy, tmp_path, ending):
    with pytest.raises(OSError, match=rf"model\{ending} cannot be written: .*Check the free space"), full_disk(5_000):
        save(trained_toy(depth=1), tmp_path / f"model{ending}")
    assert not os.listdir(tmp_path)
