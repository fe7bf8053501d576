"""`keras-vit benchmark` on small files."""

import json

import keras
import pytest

import keras_vit
from keras_vit.export import write_tflite
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=8, depth=1, width=16, mlp_dim=32, num_heads=2, num_classes=4
    )
    written = write_tflite(model, tmp_path_factory.mktemp("tflite"), ["float32", "dynamic-int8"])
    return [str(written[name]) for name in ("float32", "dynamic-int8")]


def test_table_and_json(files, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["benchmark", *files, "--num-threads", "1", "--num-runs", "3", "--top", "2", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "model-float32.tflite" in printed and "model-dynamic-int8.tflite" in printed
    assert "median ms" in printed and printed.count(" x ") == 4
    results = json.loads(out.read_text())
    assert [(item["path"], item["num_threads"], item["num_runs"]) for item in results] == [
        (file, 1, 3) for file in files
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_no_profile(files, capsys):
    assert main(["benchmark", files[0], "--num-runs", "1", "--no-profile"]) == 0
    assert "no profile: not requested" in capsys.readouterr().out


def test_errors_are_one_line(files, tmp_path, capsys):
    bad = tmp_path / "model.keras"
    bad.write_bytes(b"PK\3\4 and more")
    for arguments, message in (
        ([str(bad)], "is not a .tflite file"),
        ([str(tmp_path / "nowhere.tflite")], "No such file"),
        ([files[0], "--num-threads", "0"], "`num_threads` must be 1 or more. Received: 0"),
        ([files[0], "--json", str(tmp_path / "no" / "out.json")], "--json requires a file in an existing folder"),
        ([], "Pass at least one .tflite file"),
    ):
        assert main(["benchmark", *arguments]) == 1
        error = capsys.readouterr().err.strip()
        assert error.splitlines()[-1].startswith("keras-vit: ") and message in error
