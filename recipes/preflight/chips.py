"""TPU chips and slices to compile for.

Memory, peak and bandwidth are Google's figures: https://cloud.google.com/tpu/docs/v6e and its sibling pages (v2 and v3:
the table in https://cloud.google.com/tpu/docs/system-architecture-tpu-vm; bandwidth of v2: "A domain-specific
supercomputer for training deep neural networks", doi 10.1145/3360307). Each of the two cores of a v2 or v3 chip is a
device with half of the chip's resources; a later chip is one device.
"""

import math
import re
from dataclasses import dataclass

GB, TB = 1e9, 1e12
GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """A TPU chip. Figures are per device; a device holds one replica of the model and is a chip or one of its cores.

    Args:
        name: Such as "v5e".
        devices: Devices per chip.
        memory: HBM in bytes.
        peak_flops: Peak bfloat16 FLOP/s.
        bandwidth: HBM bandwidth in bytes/s.
        slices: Some topologies that can be compiled for.
    """

    name: str
    devices: int
    memory: float
    peak_flops: float
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
        replicas: Number of devices. Each processes its part of a global batch.
    """

    name: str
    chip: Chip
    num_chips: int

    @property
    def replicas(self) -> int:
        return self.num_chips * self.chip.devices


def parse_topology(name: str) -> Topology:
    """Parses "v5e:2x4": the chip, and the number of chips along each side of the slice. "v3:1" is a single v3 chip."""
    match = re.fullmatch(r"(v\w+):(\d+(?:x\d+){0,2})", name)
    if not match or match[1] not in CHIPS:
        examples = ", ".join(slice for chip in CHIPS.values() for slice in chip.slices[:2])
        raise ValueError(f"Expected a topology (chip and sides of the slice) such as {examples}. Received: {name!r}")
    chip, sides = CHIPS[match[1]], [int(side) for side in match[2].split("x")]
    dimensions = chip.slices[0].count("x") + 1
    # Hosts have 2 x 2 chips; one chip of a host can be compiled for, too.
    if sides != [1] and (len(sides) != dimensions or any(side < 2 or side % 2 for side in sides[:2]) or not all(sides)):
        raise ValueError(
            f"A slice of {chip.name} has {dimensions} sides, of which the first two are even, such as "
            f"{', '.join(chip.slices)}; {chip.name}:1 is a single chip. Received: {name!r}"
        )
    return Topology(name, chip, math.prod(sides))
