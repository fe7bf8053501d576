"""`keras-vit preflight` on .tflite files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow


def test_one_file_and_chip(tflite_files, run_cli):
    status, printed, _ = run_cli("preflight", tflite_files[0], "--npu", "sm8750", "SM8750")
    assert status == 0 and "model-float32.tflite on SM8750" in printed and "|" not in printed


def test_table_json_and_compiled_files(tflite_files, tmp_path, run_cli):
    report, folder = tmp_path / "report.json", tmp_path / "new" / "compiled"
    options = ["--npu", "SM8350", "SM8750", "--json", report, "--output", folder]
    status, printed, _ = run_cli("preflight", *tflite_files, *options)
    assert status == 1  # SM8350 has integer operations only
    assert printed.count("\n| ") + printed.startswith("| ") == 5 and printed.count("export the format int8") == 2
    entries = json.loads(report.read_text())
    assert [(entry["chip"]["model"], entry["ready"]) for entry in entries] == [
        ("SM8350", False),
        ("SM8750", True),
        ("SM8350", False),
        ("SM8750", True),
    ]
    assert sorted(file.name for file in folder.iterdir()) == [
        "model-dynamic-int8-SM8750.tflite",
        "model-float32-SM8750.tflite",
    ]
    assert (folder / "model-float32-SM8750.tflite").stat().st_size == entries[1]["size_bytes"]


def test_simulation(tflite_files, tmp_path, run_cli):
    (folder := tmp_path / "images").mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 30, 3), "uint8")
        Image.fromarray(pixels).save(folder / f"{i}.png")
    report = tmp_path / "report.json"
    options = ["--npu", "SM8350", "SM8750", "--simulate", folder, "--json", report]
    status, printed, _ = run_cli("preflight", tflite_files[0], *options)
    assert status == 1 and "| images | same top-1 class |" in printed
    assert printed.count("Not simulated: ") == 1
    assert f"Not simulated: {tflite_files[0]} on SM8350 (Snapdragon 888): it does not compile.\n" in printed
    without_float, whole = json.loads(report.read_text())
    assert whole["simulation"]["num_images"] == 3 and whole["simulation"]["max_difference"] < 0.01
    assert without_float["simulation"] is None  # it does not compile
    assert sorted(file.name for file in tmp_path.iterdir()) == ["images", "report.json"]


def test_all_files_and_chips_are_checked_before_the_first_is_compiled(tflite_files, tmp_path, run_cli, monkeypatch):
    monkeypatch.setattr("keras_vit.export.npu.compile_for_npu", lambda *arguments: pytest.fail("compiled"))
    (cut := tmp_path / "cut.tflite").write_bytes(tflite_files[0].read_bytes()[:2000])
    for arguments, message in (
        ([tmp_path / "no.tflite", "--npu", "SM8750"], "There is no file"),
        ([cut, "--npu", "SM8750"], "is damaged, perhaps truncated"),
        (["--npu", "SM8750", "MT6991"], "The compiler of mediatek is missing"),
        ([tflite_files[0].parent, "--npu", "SM8750"], f"Pass a file: {tflite_files[1]}, {tflite_files[0]}."),
    ):
        status, _, errors = run_cli("preflight", tflite_files[0], *arguments, "--output", tmp_path / "out")
        assert status == 1 and message in errors and not (tmp_path / "out").exists(), arguments


def test_errors_are_one_line(tflite_files, tmp_path, run_cli):
    bad = tmp_path / "model.keras"
    bad.write_bytes(b"PK\3\4 and more")
    for arguments, message in (
        ([tflite_files[0], "--npu", "SM9999"], "Expected a chip"),
        ([bad, "--npu", "SM8750"], "is not a .tflite file"),
        (["cifar10-scratch", "--npu", "SM8750"], "There is no file"),
        (["--npu", "SM8750"], "Pass at least one .tflite file"),
        ([tflite_files[0], "--output", bad], "--output requires a folder"),
        (
            [tflite_files[0], "--output", bad / "x"],
            f"{bad}/x cannot be created (Not a directory); choose another --output",
        ),
        (
            [tflite_files[0], Path(tflite_files[0].name), "--output", tmp_path / "out"],
            "--output requires files of different names",
        ),
        ([tflite_files[0], "--simulate", tmp_path / "no"], "Expected a folder of images"),
        ([tflite_files[0], "--json", tmp_path / "no" / "out.json"], "--json requires a file in an existing folder"),
    ):
        status, _, errors = run_cli("preflight", *arguments)
        assert status == 1 and message in errors and errors.count("\n") == 1, arguments
