"""Which operations of a .tflite file would leave an accelerator, and why, before anybody tries it on a phone."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from keras_vit.export.audit import targets as tables
from keras_vit.export.tflite.delegation import delegation
from keras_vit.export.tflite.graph import read_graph

TARGETS = ("cpu-xnnpack", "gpu", "nnapi-npu", "edgetpu", "litert2")


@dataclass(frozen=True)
class Finding:
    """Operations of one kind that leave an accelerator for one reason.

    Args:
        target: Of `TARGETS`.
        operation: Its name in TFLite's schema; a custom operation's own, such as "FlexErf".
        dtype: Of its first input that is no constant; "float32 x int8" with dynamic-range weights.
        count: How many there are.
        location: Of the first: its number in the file and the name of its output.
        reason: Why, and what to use instead where something is known.
    """

    target: str
    operation: str
    dtype: str
    count: int
    location: str
    reason: str


@dataclass(frozen=True)
class Audit:
    """What `audit` found; its text is a report.

    Args:
        path: The file.
        operations: How many it has.
        targets: That were asked for.
        findings: In the order of the targets, then of the file.
    """

    path: str
    operations: int
    targets: tuple[str, ...]
    findings: tuple[Finding, ...]

    def of(self, target: str) -> list[Finding]:
        """The findings of a target.

        Raises:
            ValueError: It was not audited.
        """
        if target not in self.targets:
            raise ValueError(f"This audit is of {', '.join(self.targets)}. Received: {target!r}")
        return [finding for finding in self.findings if finding.target == target]

    def fails(self, target: str) -> bool:
        """Whether any operation leaves the target.

        Raises:
            ValueError: It was not audited.
        """
        return bool(self.of(target))

    def as_json(self) -> str:
        """All of it, for programs."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def __str__(self):
        lines = [f"{self.path}: {self.operations} operations"]
        for target in self.targets:
            findings = self.of(target)
            left = sum(finding.count for finding in findings)
            lines.append(f"{target}: " + (f"{left} leave it" if left else "all stay"))
            for (reason, dtype), group in _grouped(findings, lambda found: (found.reason, found.dtype)).items():
                names = ", ".join(dict.fromkeys(found.operation for found in group))
                lines.append(f"  {sum(found.count for found in group):>4} {names} ({dtype}): {reason}")
                lines.append(f"       first: {group[0].location}")
        return "\n".join(lines)


def audit(path, targets: Sequence[str] = TARGETS) -> Audit:
    """Says which operations of a .tflite file accelerators would leave to the CPU, or refuse the file for.

    "cpu-xnnpack" is asked of LiteRT's interpreter, with the delegate it applies by default, on this machine, about the
    first subgraph: what it leaves runs in plainer kernels. The others are tables made from the delegates' code and
    manuals, with their addresses in `audit_targets.py`: "gpu" is TFLite's GPU delegate, "litert2" the GPU accelerator
    of LiteRT 2's `CompiledModel`, "nnapi-npu" Android's NNAPI from API level 31 on, "edgetpu" Coral's. A table knows
    dtypes, shapes and options; it does not know a phone's driver, memory, the runtime's version, or whether the numbers
    come out right. No finding means that nothing documented is against it, a finding that the maker's own code or
    manual is.

    Args:
        path: The file.
        targets: Of `TARGETS`.

    Raises:
        ValueError: An unknown target, or the file is empty, something else, or broken.
        OSError: There is no such file.
    """
    unknown = [name for name in targets if name not in TARGETS]
    if unknown or not targets or isinstance(targets, str):
        raise ValueError(f"`targets` must be some of {', '.join(TARGETS)}. Received: {targets!r}")
    operations = read_graph(path)
    # An operation on constants alone (the DEQUANTIZE of float16 weights) is computed once, when the file is loaded.
    running = [operation for operation in operations if operation.runtime_inputs]
    quantized = any(
        operation.name in ("FULLY_CONNECTED", "CONV_2D") and operation.dtype in ("int8", "uint8")
        for operation in running
    )
    why = {"gpu": tables.gpu, "edgetpu": tables.edgetpu, "litert2": tables.litert2}
    why["nnapi-npu"] = lambda operation: tables.nnapi(operation, quantized)
    findings = []
    for target in dict.fromkeys(targets):
        if target == "cpu-xnnpack":
            leaving = _left_by_xnnpack(path, operations)
        else:
            reasons = ((operation, why[target](operation)) for operation in running)
            leaving = [(operation, reason) for operation, reason in reasons if reason]
        findings += _counted(target, leaving)
    return Audit(str(Path(path)), len(operations), tuple(dict.fromkeys(targets)), tuple(findings))


def _left_by_xnnpack(path, operations):
    running = [operation for operation in operations if operation.runtime_inputs]
    try:
        left = delegation(path, operations).left
    except RuntimeError as error:  # Flex and custom operations: the interpreter cannot run the file at all
        custom = [operation for operation in running if operation.custom]
        reason = f"the interpreter cannot run it: {str(error).strip().splitlines()[0]}"
        return [(operation, reason) for operation in custom or running[:1]]
    return [(one, _why_xnnpack(one)) for one in running if one.subgraph == 0 and one.index in left]


def _why_xnnpack(operation):
    if operation.name == "STRIDED_SLICE" and operation.options.shrinkAxisMask:
        return tables.DROPS_AXIS
    # Not of constants: the biases of 16-bit products are int64.
    wide = {tensor.dtype for tensor in (*operation.runtime_inputs, *operation.outputs)} & {"int64", "float64"}
    if wide:
        return f"{' and '.join(sorted(wide))} numbers; use int32 or float32"
    table = tables.XNNPACK | (tables.XNNPACK_INT8 if operation.dtype in ("int8", "uint8") else {})
    return table.get(operation.name, "the delegate of this LiteRT does not take it with these dtypes or options")


def _counted(target, leaving):
    groups = _grouped(leaving, lambda pair: (pair[0].name, pair[0].dtype, pair[1]))
    return [
        Finding(target, name, dtype, len(group), group[0][0].location, reason)
        for (name, dtype, reason), group in groups.items()
    ]


def _grouped(items, key):
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
