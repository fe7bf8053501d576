"""The chips that LiteRT's compiler plug-ins know, their compilers, and what these made of a .tflite file."""

import difflib
import importlib
import importlib.util
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from keras_vit.export.findings import Finding

# Folders of `ai_edge_litert.aot.vendors`, and the class of LiteRT's targets.
VENDORS = ("qualcomm", "mediatek", "google_tensor", "samsung", "intel_openvino")
SNAPDRAGONS = ("SM8450", "SM8550", "SM8650", "SM8750", "SM8850")
# Qualcomm's model numbers, https://www.qualcomm.com/products/mobile/snapdragon. Other vendors' names say it themselves.
NAMES = {
    "SA8255": "Snapdragon Cockpit SA8255P",
    "SA8295": "Snapdragon Cockpit SA8295P",
    "SM8350": "Snapdragon 888",
    "SM8450": "Snapdragon 8 Gen 1",
    "SM8475": "Snapdragon 8+ Gen 1",
    "SM8550": "Snapdragon 8 Gen 2",
    "SM8650": "Snapdragon 8 Gen 3",
    "SM8750": "Snapdragon 8 Elite",
    "SM8845": "Snapdragon 8 Gen 5",
    "SM8850": "Snapdragon 8 Elite Gen 5",
}
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


@dataclass(frozen=True)
class Chip:
    """A chip with an NPU.

    Args:
        model: The model that LiteRT's compiler knows, such as "SM8750".
        vendor: One of `VENDORS`.
    """

    model: str
    vendor: str

    @property
    def name(self) -> str:
        """Under which it is sold; for other chips than Qualcomm's the vendor."""
        return NAMES.get(self.model, self.vendor)

    def __str__(self):
        return f"{self.model} ({self.name})"


def known_chips(vendors=VENDORS) -> dict[str, Chip]:
    """Model -> chip, in the order of LiteRT's targets."""
    chips: dict[str, Chip] = {}
    for vendor in vendors:
        try:
            target = importlib.import_module(f"ai_edge_litert.aot.vendors.{vendor}.target")
        except ImportError as error:
            raise ImportError(
                f"NPU compilers require LiteRT: pip install 'vit-for-keras[export,npu]' ({error})."
            ) from error
        chips |= {str(model): Chip(str(model), vendor) for model in target.SocModel if model != "ALL"}
    return chips


def find_chip(model: str) -> Chip:
    """The chip of a model, in upper or lower case.

    Raises:
        ValueError: LiteRT's compilers do not know it.
        ImportError: See `known_chips`.
    """
    chips = {name.lower(): chip for name, chip in known_chips().items()}
    if model.lower() in chips:
        return chips[model.lower()]
    similar = difflib.get_close_matches(model.lower(), chips, 1)
    hint = f" Perhaps you meant {chips[similar[0]].model}." if similar else ""
    names = ", ".join(chip.model for chip in chips.values())
    raise ValueError(f"Expected a chip that LiteRT's compilers know: {names}. Received: {model}.{hint}")


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
        raise ImportError("Qualcomm's compiler is missing: pip install 'vit-for-keras[npu]'.")
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


MB = 1e6


@dataclass(frozen=True)
class NpuReport:
    """A file compiled for a chip; `print` shows a report.

    Args:
        file: The .tflite file.
        chip: The chip.
        num_operations: Number of operations in the file.
        num_on_npu: How many of them the NPU runs; 0 if the file does not compile.
        num_partitions: Number of programs on the NPU. Between two of them the CPU runs operations.
        not_on_npu: What is left to the CPU, or what the compiler failed for.
        error: Why the file does not compile; None if it does.
        seconds: Wall time of the compiler.
        size_bytes: Size of the compiled file.
        read_bytes, written_bytes: Traffic between the NPU and memory (DDR) for one image, as the compiler planned it;
            None where the vendor's compiler does not report it.
        spilled_bytes, filled_bytes: The part of it for values that do not fit in the NPU's own memory.
    """

    file: str
    chip: Chip
    num_operations: int
    num_on_npu: int
    num_partitions: int
    not_on_npu: tuple[Finding, ...] = ()
    error: str | None = None
    seconds: float = 0.0
    size_bytes: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    spilled_bytes: int | None = None
    filled_bytes: int | None = None

    @property
    def ready(self) -> bool:
        """Whether the NPU runs every operation."""
        return self.error is None and self.num_on_npu == self.num_operations

    def as_dict(self) -> dict:
        """All fields, and `ready`, for JSON."""
        return asdict(self) | {"ready": self.ready}

    def __str__(self):
        lines = [f"{self.file} on {self.chip}"]
        if self.error:
            lines.append(f"  DOES NOT COMPILE      {self.error}")
        else:
            lines.append(
                f"  operations on the NPU {self.num_on_npu:,} of {self.num_operations:,}, in {self.num_partitions} "
                f"program{'s' * (self.num_partitions != 1)}"
            )
        if self.read_bytes is not None:
            lines.append(
                f"  memory traffic        {self.read_bytes / MB:.2f} MB read, {self.written_bytes / MB:.2f} written"
            )
            lines.append(
                f"  beyond its own memory {self.spilled_bytes / MB:.2f} MB spilled, {self.filled_bytes / MB:.2f} filled"
            )
        if not self.error:
            lines.append(f"  compiled file         {self.size_bytes / MB:.2f} MB, in {self.seconds:.1f} s")
        for left in self.not_on_npu:
            lines.append(f"  {left.count:>4} {left.operation} ({left.dtype}): {left.reason}")
            lines.append(f"       first: {left.location}")
        return "\n".join(lines)


def npu_table(reports: Sequence[NpuReport]) -> str:
    """The reports as a Markdown table, a row per file and chip."""
    head = "| file | chip | on the NPU | programs | read | written | spilled, filled | size | compile time |"
    rows = [head, "|---|---|---|---|---|---|---|---|---|"]
    for report in reports:
        start = f"| {report.file} | {report.chip} |"
        if report.error:
            rows.append(f"{start} does not compile | | | | | | |")
            continue
        traffic = [report.read_bytes, report.written_bytes, report.spilled_bytes, report.filled_bytes]
        read, written, spilled, filled = ("?" if count is None else f"{count / MB:.2f}" for count in traffic)
        placed = f"{report.num_on_npu:,} of {report.num_operations:,} | {report.num_partitions}"
        moved = f"{read} MB | {written} MB | {spilled}, {filled} MB"
        rows.append(f"{start} {placed} | {moved} | {report.size_bytes / MB:.2f} MB | {report.seconds:.1f} s |")
    return "\n".join(rows)
