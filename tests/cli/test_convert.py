import re

import numpy as np
import pytest
from goldens import golden_file, golden_io

import keras_vit
from keras_vit_cli.main import main


def test_outputs_are_preserved(run_cli, tmp_path):
    io = golden_io("hf_deit")
    status, output, _ = run_cli("convert", golden_file(tmp_path, "hf_deit"), tmp_path / "x.keras", "--num-heads", 3)
    assert status == 0 and output.startswith(f"Wrote {tmp_path / 'x.keras'} (") and output.count("\n") == 2
    assert run_cli("convert", tmp_path / "x.keras", tmp_path / "deit")[1].count("Wrote") == 4
    assert "x.keras`.\n" in (tmp_path / "deit" / "model_card.md").read_text()
    assert "with num_heads=3." in (tmp_path / "x.model_card.md").read_text()
    for file in (tmp_path / "x.keras", tmp_path / "deit"):
        np.testing.assert_allclose(keras_vit.load(file)(io["images"]), io["logits"], atol=1e-4)


def test_new_image_size_without_head(run_cli, tmp_path):
    file = golden_file(tmp_path, "vit_jax_token")
    assert run_cli("convert", file, tmp_path / "x.npz", "--image-size", 96, "--num-classes", 0)[0] == 0
    model = keras_vit.load(tmp_path / "x.npz")
    assert model.image_size == (96, 96) and model.num_classes == 0
    expected = keras_vit.load(file, image_size=96, num_classes=0)
    np.testing.assert_array_equal(model.positions.table, expected.positions.table)


@pytest.mark.parametrize(
    "golden,output,options,message",
    [
        ("vit_jax_token", "taken.npz", (), r"taken\.npz already exists\. Remove it or pass --overwrite"),
        ("vit_jax_token", "x.bin", (), r"Expected a name that ends in"),
        ("vit_jax_token", "y.npz", ("--num-classes", -1), r"--num-classes must be at least 0 \(no head\)"),
        ("hf_vit", "y.npz", ("--num-heads", 3), r"gelu='erf'"),
        ("hf_vit", "y.keras", (), r"num_heads="),
        ("big_vision_bit_v1", "y.npz", (), r"Only a VisionTransformer can be saved as \.npz"),
    ],
)
def test_errors_leave_no_files(run_cli, tmp_path, golden, output, options, message):
    file = golden_file(tmp_path, golden)
    (tmp_path / "taken.npz").write_text("mine")
    before = sorted(tmp_path.iterdir())
    status, text, errors = run_cli("convert", file, tmp_path / output, *options)
    assert (status, text) == (1, "") and errors.startswith("keras-vit: ") and re.search(message, errors), errors
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "taken.npz").read_text() == "mine"


def test_missing_argument():
    with pytest.raises(SystemExit) as stopped:
        main(["convert", "x.npz"])
    assert stopped.value.code == 2
