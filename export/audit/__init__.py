"""Lists the operations of a .tflite file that an accelerator does not support, without a device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from keras_vit.export.audit import targets as tables
from keras_vit.export.findings import NPU, Finding, counted, grouped
from keras_vit.export.tflite.flatbuffer import move_to_front, pack_model, read_signatures, unpack_model
from keras_vit.export.tflite.graph import read_delegation, read_graph

__all__ = ["TARGETS", "Audit", "Finding", "audit"]

TARGETS = ("cpu-xnnpack", "gpu", "litert2")


@dataclass(frozen=True)
class Audit:
    """Result of `audit`; `print` shows a report.

    Args:
        path: The file.
        num_operations: Number of operations in the file.
        targets: The requested targets.
        findings: In the order of the targets, then of the file.
    """

    path: str
    num_operations: int
    targets: tuple[str, ...]
    findings: tuple[Finding, ...]

    def of(self, target: str) -> list[Finding]:
        """The findings of a target.

        Raises:
            ValueError: The target was not audited.
        """
        if target not in self.targets:
            raise ValueError(f"Expected an audited target: {', '.join(self.targets)}. Received: {target!r}")
        return [finding for finding in self.findings if finding.target == target]

    def fails(self, target: str) -> bool:
        """Whether the target does not support some operation.

        Raises:
            ValueError: The target was not audited.
        """
        return bool(self.of(target))

    def __str__(self):
        lines = [f"{self.path}: {self.num_operations} operations"]
        for target in self.targets:
            findings = self.of(target)
            count = sum(finding.count for finding in findings)
            lines.append(f"{target}: " + (f"{count} not delegated" if count else "fully delegated"))
            for (reason, dtype), group in grouped(findings, lambda found: (found.reason, found.dtype)).items():
                names = ", ".join(dict.fromkeys(found.operation for found in group))
                lines.append(f"  {sum(found.count for found in group):>4} {names} ({dtype}): {reason}")
                lines.append(f"       first: {group[0].location}")
        return "\n".join(lines)


def audit(path, targets: Sequence[str] = TARGETS) -> Audit:
    """Lists the operations of a .tflite file that accelerators leave to the CPU, or for which they reject the file.

    "cpu-xnnpack" is read from LiteRT's interpreter on this machine, with its default delegate, for every signature;
    operations that are not delegated run in slower kernels. "gpu", TFLite's GPU delegate, and "litert2", the GPU
    accelerator of LiteRT 2's `CompiledModel`, are tables from the source code of the delegates, cited in
    targets.py. They check dtypes, shapes and options. They do not know a device's driver, memory and runtime
    version, nor whether the results are correct there. No finding means that no documented limit is violated. "npu:"
    and a chip, such as "npu:SM8750", compiles the file with the compiler of the chip's vendor, see
    `keras_vit.export.npu`.

    Args:
        path: The file.
        targets: Some of `TARGETS`, or "npu:" and chips.

    Raises:
        ValueError: A target is unknown, or the file is empty, of another format, or damaged.
        ImportError: The compiler of a chip is missing.
        OSError: The file does not exist.
    """
    check_targets(targets)
    operations = read_graph(path)
    # An operation on constants alone (the DEQUANTIZE of float16 weights) runs once, when the file is loaded.
    running = [operation for operation in operations if operation.runtime_inputs]
    checks = {"gpu": tables.gpu, "litert2": tables.litert2}
    findings = []
    for target in dict.fromkeys(targets):
        if target.startswith(NPU):
            findings += _left_by_npu(path, target)
            continue
        if target == "cpu-xnnpack":
            unsupported = _not_delegated_to_xnnpack(path, operations)
        else:
            reasons = ((operation, checks[target](operation)) for operation in running)
            unsupported = [(operation, reason) for operation, reason in reasons if reason]
        findings += counted(target, unsupported)
    return Audit(str(Path(path)), len(operations), tuple(dict.fromkeys(targets)), tuple(findings))


def check_targets(targets: Sequence[str]):
    """Raises a ValueError for unknown targets, and an ImportError if the compiler of an NPU is missing."""
    unknown = [name for name in targets if name not in TARGETS and not name.startswith(NPU)]
    if unknown or not targets or isinstance(targets, str):
        raise ValueError(
            f"`targets` must be some of {', '.join(TARGETS)}, or the NPU of a chip, such as npu:SM8750. "
            f"Received: {targets!r}"
        )
    if chips := [name.removeprefix(NPU) for name in targets if name.startswith(NPU)]:
        from keras_vit.export.npu.chips import check_machine, check_sdk, find_chip

        check_machine()
        for chip in chips:
            check_sdk(find_chip(chip).vendor)


def _left_by_npu(path, target):
    from keras_vit.export.npu import compile_for_npu, find_chip

    report = compile_for_npu(path, find_chip(target.removeprefix(NPU)))
    findings = [replace(finding, target=target) for finding in report.not_on_npu]  # as it was requested
    if report.ready or (findings and not report.error):
        return findings
    # Without an error, other compilers than Qualcomm's give no reasons.
    reason, count = report.error or "the compiler does not say why", report.num_operations - report.num_on_npu
    return [Finding(target, "operations", "all dtypes", count, str(path), reason)]


def _not_delegated_to_xnnpack(path, operations):
    running = [operation for operation in operations if operation.runtime_inputs]
    try:
        left = _not_delegated(Path(path).read_bytes(), operations)
    except RuntimeError as error:  # Flex and custom operations: the interpreter cannot run the file at all
        custom = [operation for operation in running if operation.custom]
        reason = f"the interpreter cannot run it: {str(error).strip().splitlines()[0]}"
        return [(operation, reason) for operation in custom or running[:1]]
    return [
        (operation, _xnnpack_reason(operation))
        for operation in running
        if (operation.subgraph, operation.index) in left
    ]


def _not_delegated(content, operations) -> set[tuple[int, int]]:
    """(subgraph, index) of the operations that are not delegated: LiteRT reports those of the first subgraph."""
    model, kinds = unpack_model(content), set()
    for name, signature in read_signatures(model).items():
        subgraph, file = signature.subgraph, content
        if subgraph:
            move_to_front(model, name)
            file = pack_model(model)
        own = [replace(operation, subgraph=0) for operation in operations if operation.subgraph == subgraph]
        kinds |= {(subgraph, index) for index in read_delegation(file, own).not_delegated}
    return kinds


def _xnnpack_reason(operation):
    if operation.name == "STRIDED_SLICE" and operation.options.shrinkAxisMask:
        return tables.DROPS_AXIS
    # Constants are excluded: the biases of 16-bit products are int64.
    wide = {tensor.dtype for tensor in (*operation.runtime_inputs, *operation.outputs)} & {"int64", "float64"}
    if wide:
        return f"{' and '.join(sorted(wide))} is not supported; use int32 or float32"
    table = tables.XNNPACK | (tables.XNNPACK_INT8 if operation.dtype in ("int8", "uint8") else {})
    return table.get(operation.name, "the delegate does not support it with these dtypes or options")
