"""Finds the vendors' compiler libraries. A library that is missing for Qualcomm is stood in for here."""

import importlib
import importlib.util
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keras_vit.export.npu.chips import SNAPDRAGONS, VENDORS, Chip, find_chip, known_chips

PACKAGES = {
    "qualcomm": "ai_edge_litert_sdk_qualcomm",
    "mediatek": "ai_edge_litert_sdk_mediatek",
    "google_tensor": "ai_edge_litert_sdk_google_tensor",
    "samsung": "ai_edge_litert_sdk_samsung",
    "intel_openvino": "ai_edge_litert_sdk_intel",
}
# Qualcomm's plug-in loads it for the LPAI, a unit for audio, and onnxruntime-qnn does not contain it.
MISSING = "libQnnLpai.so"
IN_ITS_PLACE = "libQnnIr.so"


def check_machine():
    """Raises a ValueError on a machine that the vendors have no compilers for."""
    received = f"{platform.system()} {platform.machine()}"
    if received != "Linux x86_64":
        raise ValueError(
            f"The compilers for NPUs run on x86-64 Linux only. Received: {received}. Run this command there, for "
            "example in a container; the compiled files are for the phone in any case."
        )


def sdk_folder(vendor: str) -> Path | None:
    """The libraries of the vendor's package for LiteRT; None if it is not installed, or its SDK was not downloaded."""
    try:
        folder = importlib.import_module(PACKAGES[vendor]).path_to_sdk_libs()
    except (ImportError, NotImplementedError):
        return None
    return Path(folder) if folder and any(Path(folder).glob("*.so*")) else None


def default_chips() -> list[Chip]:
    """Five Snapdragon chips, and those of every other vendor whose package is complete."""
    others = known_chips([vendor for vendor in VENDORS if vendor != "qualcomm" and sdk_folder(vendor)])
    return [*map(find_chip, SNAPDRAGONS), *others.values()]


def check_sdk(vendor: str):
    """Raises an ImportError that names the package to install, if the vendor's compiler is missing."""
    if sdk_folder(vendor) or (vendor == "qualcomm" and _qnn_folder()):
        return
    package = PACKAGES[vendor].replace("_", "-")
    if vendor == "qualcomm":
        raise ImportError("Qualcomm's compiler is missing: pip install 'keras_vit[npu]'.")
    if vendor == "samsung":
        raise ImportError(f"Samsung's compiler is missing: PyPI has no {package}; ask Samsung for it.")
    raise ImportError(
        f"The compiler of {vendor} is missing: pip install --force-reinstall --no-cache-dir {package}, with internet, "
        "since the package downloads it from the vendor."
    )


@contextmanager
def qualcomm_libraries() -> Iterator[str]:
    """Yields the LD_LIBRARY_PATH under which LiteRT's plug-in finds Qualcomm's compiler.

    The libraries are those of Qualcomm's package for LiteRT, else those of onnxruntime-qnn. In the second case
    libQnnLpai.so is missing. The plug-in names it as a dependency but calls it only to compile for an LPAI, which is
    never requested here, so a link of that name in a temporary folder, which leads to another library that the plug-in
    loads anyway, satisfies the loader. No file of a package is changed.

    Raises:
        ImportError: See `check_sdk`.
    """
    check_sdk("qualcomm")
    litert = litert_file()
    qnn = _qnn_folder()
    if (sdk := sdk_folder("qualcomm")) or qnn is None:
        yield os.pathsep.join(map(str, (sdk, litert)))
        return
    with tempfile.TemporaryDirectory(prefix="keras-vit-npu-") as stand_in:
        if not (qnn / MISSING).exists():
            (Path(stand_in) / MISSING).symlink_to(qnn / IN_ITS_PLACE)
        yield os.pathsep.join(map(str, (stand_in, litert, qnn, qnn.with_name(f"{qnn.name}.libs"))))


def litert_file(*parts: str) -> Path:
    """A file of the package ai-edge-litert, or its folder."""
    return Path(importlib.import_module("ai_edge_litert").__file__ or "").parent.joinpath(*parts)


def _qnn_folder() -> Path | None:
    """The folder of onnxruntime-qnn, without importing it; None if it is missing or lacks the compiler."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if (folder / "libQnnHtp.so").is_file() else None
