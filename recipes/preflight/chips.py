"""TPU chips, and the slices that can be compiled for.

Memory, peak and bandwidth of a chip are Google's, https://cloud.google.com/tpu/docs/v6e and its neighbors (v2 and v3:
the table of https://cloud.google.com/tpu/docs/system-architecture-tpu-vm, v2's bandwidth from "A domain-specific
supercomputer for training deep neural networks", doi 10.1145/3360307). A chip of v2 and v3 has two cores, each a device
with half of everything; the cores of a later chip are one device.
"""

import re
from dataclasses import dataclass

GB, TB = 1e9, 1e12
GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """One device of a TPU, which has a replica of the model: a chip, or one of its cores.

    Args:
        name: "v5e".
        devices: Devices a chip.
        memory: Bytes a device.
        peak: bfloat16 operations a second and device.
        bandwidth: Bytes a second and device between memory and compute units.
        slices: Some topologies, as arguments of a preflight.
    """

    name: str
    devices: int
    memory: float
    peak: float
    bandwidth: float
    slices: tuple[str, ...]


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v2", 2, 8 * GIB, 22.5 * TB, 350 * GB, ("v2:2x2", "v2:4x4")),
        Chip("v3", 2, 16 * GIB, 61.5 * TB, 450 * GB, ("v3:2x2", "v3:4x4")),
        Chip("v4", 1, 32 * GIB, 275 * TB, 1228 * GB, ("v4:2x2x1", "v4:2x2x2")),
        Chip("v5e", 1, 16 * GIB, 197 * TB, 819 * GB, ("v5e:2x2", "v5e:2x4", "v5e:4x4")),
        Chip("v5p", 1, 95 * GIB, 459 * TB, 2765 * GB, ("v5p:2x2x1", "v5p:2x2x2")),
        Chip("v6e", 1, 32 * GIB, 918 * TB, 1640 * GB, ("v6e:2x2", "v6e:2x4", "v6e:4x4")),
    )
}


@dataclass(frozen=True)
class Topology:
    """A slice of a TPU, such as "v5e:2x4".

    Attributes:
        name: As given.
        chip: Its kind.
        chips: Their number.
        replicas: Devices, each of which has its part of a batch.
    """

    name: str
    chip: Chip
    chips: int

    @property
    def replicas(self) -> int:
        return self.chips * self.chip.devices


def parse_topology(name: str) -> Topology:
    """Reads "v5e:2x4": the kind of chip, and their numbers along each side of the slice; "v3:1" is one chip of v3.

    Raises:
        ValueError: Not of this form, or an unknown chip.
    """
    match = re.fullmatch(r"(v\w+):(\d+(?:x\d+){0,2})", name)
    if not match or match[1] not in CHIPS:
        examples = ", ".join(slice for chip in CHIPS.values() for slice in chip.slices[:2])
        raise ValueError(f"A topology is a chip and the sides of a slice, such as {examples}. Received: {name!r}")
    chips = 1
    for side in match[2].split("x"):
        chips *= int(side)
    if not chips:
        raise ValueError(f"A slice has at least one chip. Received: {name!r}")
    return Topology(name, CHIPS[match[1]], chips)
