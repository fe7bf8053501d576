"""`keras-vit benchmark` on small files."""

import json

import pytest

from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


def test_table_and_json(tflite_files, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert (
        main(
            [
                "benchmark",
                *map(str, tflite_files),
                "--num-threads",
                "1",
                "--num-runs",
                "3",
                "--top",
                "2",
                "--json",
                str(out),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "model-float32.tflite" in printed and "model-dynamic-int8.tflite" in printed
    assert "median ms" in printed and printed.count(" x ") == 4
    results = json.loads(out.read_text())
    assert [(item["path"], item["num_threads"], item["num_runs"]) for item in results] == [
        (str(file), 1, 3) for file in tflite_files
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_no_profile(tflite_files, capsys):
    assert main(["benchmark", str(tflite_files[0]), "--num-runs", "1", "--no-profile"]) == 0
    assert "no profile: not requested" in capsys.readouterr().out


def test_errors_are_one_line(tflite_files, tmp_path, capsys):
    bad = tmp_path / "model.keras"
    bad.write_bytes(b"PK\3\4 and more")
    for arguments, message in (
        ([str(bad)], "is not a .tflite file"),
        ([str(tmp_path / "nowhere.tflite")], "nowhere.tflite. keras-vit export writes .tflite files."),
        ([str(tflite_files[0]), "--num-threads", "0"], "`num_threads` must be 1 or more. Received: 0"),
        (
            [str(tflite_files[0]), "--json", str(tmp_path / "no" / "out.json")],
            "--json requires a file in an existing folder",
        ),
        ([], "Pass at least one .tflite file"),
    ):
        assert main(["benchmark", *arguments]) == 1
        error = capsys.readouterr().err.strip()
        assert error.splitlines()[-1].startswith("keras-vit: ") and message in error
