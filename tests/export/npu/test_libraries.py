"""Where the vendors' libraries come from, and messages if they are missing."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_vit.export.npu import libraries
from keras_vit.export.npu.libraries import check_machine, check_sdk, default_chips, qualcomm_libraries, sdk_folder
from keras_vit.export.npu.simulate import _packages


def install_sdk(monkeypatch, vendor, folder):
    """A package of a vendor whose SDK is in the folder."""
    package = SimpleNamespace(path_to_sdk_libs=lambda: folder)
    monkeypatch.setitem(sys.modules, libraries.PACKAGES[vendor], package)


def test_other_machines(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(ValueError, match="Received: Darwin arm64"):
        check_machine()


def test_missing_packages(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    hidden = "onnxruntime_qnn"
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == hidden else find(name))
        vendors = {"qualcomm": r"keras_vit\[npu\]", "samsung": "sdk-samsung", "mediatek": "sdk-mediatek"}
        for vendor, message in vendors.items():
            with pytest.raises(ImportError, match=message):
                check_sdk(vendor)
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(ImportError, match=r"keras_vit\[npu\]"):
        _packages.__wrapped__()
    install_sdk(monkeypatch, "qualcomm", None)  # packages whose SDK was not downloaded
    assert sdk_folder("qualcomm") is None
    install_sdk(monkeypatch, "mediatek", tmp_path)
    with pytest.raises(ImportError, match="sdk-mediatek"):
        check_sdk("mediatek")


def test_default_chips_include_vendors_whose_package_is_complete(monkeypatch, tmp_path):
    before = [chip.model for chip in default_chips()]
    assert before == ["SM8450", "SM8550", "SM8650", "SM8750", "SM8850"]
    (tmp_path / "libneuron.so").touch()
    install_sdk(monkeypatch, "mediatek", tmp_path)
    chips = [chip.model for chip in default_chips()]
    assert chips[:5] == before and "MT6991" in chips and "LNL" not in chips


def test_complete_package_of_qualcomm_comes_first(monkeypatch, tmp_path):
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
