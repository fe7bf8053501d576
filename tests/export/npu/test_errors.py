"""Chips, where the vendors' libraries come from, and errors, without a compiler."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_vit.export.npu import Chip, compile_for_npu
from keras_vit.export.npu.chips import (
    NAMES,
    PACKAGES,
    SNAPDRAGONS,
    VENDORS,
    check_machine,
    check_sdk,
    default_chips,
    find_chip,
    known_chips,
    litert_file,
    qualcomm_libraries,
    sdk_folder,
)
from keras_vit.export.npu.simulate import _packages


def install_sdk(monkeypatch, vendor, folder):
    """A package of a vendor whose SDK is in the folder."""
    monkeypatch.setitem(sys.modules, PACKAGES[vendor], SimpleNamespace(path_to_sdk_libs=lambda: folder))


def test_chips():
    chips = known_chips()
    assert {chip.vendor for chip in chips.values()} == set(VENDORS)
    assert set(NAMES) == set(known_chips(["qualcomm"])) >= set(SNAPDRAGONS)
    chip = find_chip("sm8750")
    assert (chip.model, chip.vendor, str(chip)) == ("SM8750", "qualcomm", "SM8750 (Snapdragon 8 Elite)")
    assert find_chip("tensor_g5").vendor == "google_tensor" and Chip("x", "samsung").name == "samsung"
    for typed, hint in (("SM8760", " Perhaps you meant SM8750."), ("x", "")):
        with pytest.raises(ValueError, match="SA8255, .*PTL") as error:
            find_chip(typed)
        assert str(error.value).endswith(f"Received: {typed}.{hint}")


def test_other_machines(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(ValueError, match="Received: Darwin arm64"):
        check_machine()


def test_missing_packages(monkeypatch, tmp_path):
    find, hidden = importlib.util.find_spec, "onnxruntime_qnn"
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == hidden else find(name))
        vendors = {"qualcomm": r"vit-for-keras\[npu\]", "samsung": "sdk-samsung", "mediatek": "sdk-mediatek"}
        for vendor, message in vendors.items():
            with pytest.raises(ImportError, match=message):
                check_sdk(vendor)
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(ImportError, match=r"vit-for-keras\[npu\]"):
        _packages.__wrapped__()
    install_sdk(monkeypatch, "qualcomm", None)  # packages whose SDK was not downloaded
    assert sdk_folder("qualcomm") is None
    install_sdk(monkeypatch, "mediatek", tmp_path)
    with pytest.raises(ImportError, match="sdk-mediatek"):
        check_sdk("mediatek")


def test_complete_packages(monkeypatch, tmp_path):
    before = [chip.model for chip in default_chips()]
    assert before == ["SM8450", "SM8550", "SM8650", "SM8750", "SM8850"]
    (tmp_path / "libneuron.so").touch()
    install_sdk(monkeypatch, "mediatek", tmp_path)
    chips = [chip.model for chip in default_chips()]
    assert chips[:5] == before and "MT6991" in chips and "LNL" not in chips
    (tmp_path / "libQnnHtp.so").touch()
    install_sdk(monkeypatch, "qualcomm", tmp_path)
    with qualcomm_libraries() as path:
        assert path.split(os.pathsep)[0] == str(tmp_path) and "onnxruntime" not in path


def test_stand_in_is_a_link_outside_the_packages():
    qnn = Path(importlib.util.find_spec("onnxruntime_qnn").origin).parent
    before = sorted(qnn.iterdir())
    with qualcomm_libraries() as path:
        stand_in, *others = map(Path, path.split(os.pathsep))
        assert [file.name for file in stand_in.iterdir()] == ["libQnnLpai.so"]
        assert (stand_in / "libQnnLpai.so").resolve() == (qnn / "libQnnIr.so").resolve()
        assert all(other.is_dir() for other in others) and qnn in others
    assert not stand_in.exists() and sorted(qnn.iterdir()) == before


@pytest.mark.extended
def test_errors(artifacts, monkeypatch, tmp_path):
    chip, whole = find_chip("SM8750"), artifacts["int8"]
    (bad := tmp_path / "model.keras").write_bytes(b"PK\3\4 and more")
    cases = [
        ((bad, chip), ValueError, ".tflite"),
        ((tmp_path / "nowhere.tflite", chip), FileNotFoundError, "nowhere"),
        ((whole, find_chip("E9965")), ImportError, "ai-edge-litert-sdk-samsung"),
        ((whole, chip, tmp_path / "nowhere" / "compiled.tflite"), FileNotFoundError, "nowhere"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            compile_for_npu(*arguments)
    assert litert_file("tools", "apply_plugin_main").is_file()
    (tool := tmp_path / "tool").write_text("#!/bin/sh\nkill -9 $$\n")
    tool.chmod(0o755)
    monkeypatch.setattr("keras_vit.export.npu.compile.litert_file", lambda *parts: tool)
    assert "signal 9" in compile_for_npu(whole, chip).error
