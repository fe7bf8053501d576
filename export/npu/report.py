"""What the compiler of an NPU made of a .tflite file, and tables of several files and chips."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from keras_vit.export.audit import Finding
from keras_vit.export.npu.chips import Chip

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
