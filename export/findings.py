"""What an accelerator does not support in a .tflite file: findings of the audit and of the compilers of NPUs."""

from dataclasses import dataclass

NPU = "npu:"  # before a chip, such as "npu:SM8750"


@dataclass(frozen=True)
class Finding:
    """Operations of one kind that an accelerator does not support for one reason.

    Args:
        target: One of `audit.TARGETS`, or "npu:" and a chip.
        operation: Name in TFLite's schema, or of a custom operation, such as "FlexErf".
        dtype: Dtype of its first input that is not a constant; "float32 x int8" with dynamic-range weights.
        count: Number of these operations.
        location: Index of the first one in the file, and the name of its output.
        reason: Why, and a replacement where one is known.
    """

    target: str
    operation: str
    dtype: str
    count: int
    location: str
    reason: str


def counted(target: str, unsupported) -> tuple[Finding, ...]:
    """One finding per kind of operation and reason, from pairs (operation, reason)."""
    groups = grouped(unsupported, lambda pair: (pair[0].name, pair[0].dtype, pair[1]))
    return tuple(
        Finding(target, name, dtype, len(group), group[0][0].location, reason)
        for (name, dtype, reason), group in groups.items()
    )


def grouped(items, key) -> dict:
    """Lists of the items with equal keys, in the order of their first item."""
    groups: dict = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
