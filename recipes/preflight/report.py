"""TPU chips and slices to compile for, and the result of a preflight, as figures and as a table.

Memory, peak and bandwidth are Google's figures: https://cloud.google.com/tpu/docs/v6e and its sibling pages (v2 and v3:
the table in https://cloud.google.com/tpu/docs/system-architecture-tpu-vm; bandwidth of v2: "A domain-specific
supercomputer for training deep neural networks", doi 10.1145/3360307). Each of the two cores of a v2 or v3 chip is a
device with half of the chip's resources; a later chip is one device.
"""

import math
import re
from dataclasses import asdict, dataclass, field

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


# Google's names of slices, such as "v5litepod-8", and of machines, such as "ct5lp-hightpu-8t", before their number: the
# chip, and what the number counts of each: 2 TensorCores or 1 chip. https://cloud.google.com/tpu/docs/v5p and its
# sibling pages.
ACCELERATORS = {
    **{name: (name, 2) for name in ("v2", "v3", "v4", "v5p")},
    **{"v5litepod": ("v5e", 1), "v5e": ("v5e", 1), "v6e": ("v6e", 1)},
    **{"ct4p-hightpu": ("v4", 1), "ct5lp-hightpu": ("v5e", 1), "ct5p-hightpu": ("v5p", 1), "ct6e-standard": ("v6e", 1)},
}


def parse_topology(name: str) -> Topology:
    """Parses "v5e:2x4": the chip, and the number of chips along each side of the slice. "v3:1" is a single v3 chip.

    Also Google's names of slices and machines, such as "v5litepod-8", "v3-8" and "ct5lp-hightpu-8t".
    """
    match = re.fullmatch(r"(v\w+):(\d+(?:x\d+){0,2})", _with_sides(name))
    if not match or match[1] not in CHIPS:
        examples = ", ".join(chip.slices[0] for chip in CHIPS.values())
        raise ValueError(
            f"Expected a topology (chip and sides of the slice) such as {examples}, or a name of Google's such as "
            f"v3-8, v4-8, v5litepod-8, v5p-8, v6e-8. Received: {name!r}"
        )
    chip, sides = CHIPS[match[1]], [int(side) for side in match[2].split("x")]
    dimensions = chip.slices[0].count("x") + 1
    # Hosts have 2 x 2 chips; one chip of a host can be compiled for, too.
    if sides != [1] and (len(sides) != dimensions or any(side < 2 or side % 2 for side in sides[:2]) or not all(sides)):
        raise ValueError(
            f"A slice of {chip.name} has {dimensions} sides, of which the first two are even, such as "
            f"{', '.join(chip.slices)}; {chip.name}:1 is a single chip. Received: {name!r}"
        )
    return Topology(match[0], chip, math.prod(sides))


def _with_sides(name):
    """The topology of one of Google's names; other names as they are."""
    match = re.fullmatch(r"([a-z0-9-]+)-(\d+)t?", name.lower())
    if not match or match[1] not in ACCELERATORS:
        return name.lower()
    chip, per_chip = ACCELERATORS[match[1]]
    chips, remainder = divmod(int(match[2]), per_chip)
    if chips == 1 and not remainder:
        return f"{chip}:1"
    dimensions = CHIPS[chip].slices[0].count("x") + 1
    sides = [2, 2, 1][:dimensions]  # of a host; then the shortest side doubles, the last one first
    while math.prod(sides) < chips:
        sides[max(range(dimensions), key=lambda axis: (-sides[axis], axis))] *= 2
    topology = f"{chip}:{'x'.join(map(str, sides))}"
    if remainder or math.prod(sides) != chips:
        counted = "TensorCores, two a chip" if per_chip == 2 else "chips"
        raise ValueError(
            "Expected a name of 1, 4, 8, 16, ... chips, or for another slice its chip and sides, such as "
            f"{topology}. Received: {name!r}, of {match[2]} {counted}"
        )
    return topology


@dataclass(frozen=True)
class StepReport:
    """One compiled step. All figures are per device.

    Attributes:
        kind: "training", "evaluation" or "inference".
        batch_size: Images per device.
        memory_limit: HBM of the device in bytes.
        peak_flops: Peak FLOP/s of the device.
        bandwidth: Memory bandwidth of the device in bytes/s.
        problems: Why the step cannot run; empty if it compiles.
        memory: Bytes by kind: "argument" (weights, optimizer state, a batch), "output" (including "alias", the part
            that reuses the arguments' memory), "temp", "generated_code".
        flops, bytes: Operations and memory traffic per step, as counted by the compiler.
        layer_memory: Layers with the largest live temporary tensors at peak memory, and their bytes.
        compile_seconds: Duration of the compilation; 0 for a stored result.
        compiler_memory: Peak memory of the compiler in bytes.
    """

    kind: str
    batch_size: int
    memory_limit: float
    peak_flops: float
    bandwidth: float
    problems: tuple[str, ...] = ()
    memory: dict[str, float] = field(default_factory=dict)
    flops: float = 0.0
    bytes: float = 0.0
    layer_memory: tuple[tuple[str, float], ...] = ()
    compile_seconds: float = 0.0
    compiler_memory: float = 0.0

    @property
    def required_memory(self) -> float:
        """Total bytes."""
        memory = self.memory
        return sum(memory.values()) - 2 * memory["alias"] if memory else 0.0

    @property
    def fits(self) -> bool:
        """Whether the step compiles and fits in memory."""
        return not self.problems and self.required_memory <= self.memory_limit

    @property
    def min_seconds(self) -> float:
        """Lower bound on the duration: operations at peak FLOP/s, or bytes at the full bandwidth."""
        return max(self.flops / self.peak_flops, self.bytes / self.bandwidth)

    @property
    def arithmetic_intensity(self) -> float:
        """FLOP per byte of memory traffic."""
        return self.flops / self.bytes

    @property
    def utilization(self) -> float:
        """Upper bound on the model FLOPs utilization (MFU), in [0, 1]."""
        return self.flops / self.peak_flops / self.min_seconds


@dataclass(frozen=True)
class Report:
    """The result of a preflight.

    Attributes:
        name: Name of the recipe or model.
        topology: Slice to run on.
        precision: Dtype policy of the model.
        num_parameters: Number of parameters of the model.
        steps: Reports of the compiled steps; the training step, if any, is first.
        total_steps: Training steps of the whole recipe; None if unknown.
        notes: Hints that do not prevent a step from running.
        largest_batch: The largest per-device batch that fits by kind of step, if requested.
    """

    name: str
    topology: Topology
    precision: str
    num_parameters: int
    steps: tuple[StepReport, ...]
    total_steps: int | None = None
    notes: tuple[str, ...] = ()
    largest_batch: dict[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether every step compiles and fits."""
        return all(step.fits for step in self.steps)

    @property
    def min_chip_hours(self) -> float | None:
        """Lower bound on the chip-hours of all training steps, without evaluation and input; None if unknown."""
        training = next((step for step in self.steps if step.kind == "training" and step.memory), None)
        if training is None or not self.total_steps:
            return None
        return self.total_steps * training.min_seconds * self.topology.num_chips / 3600

    def as_dict(self) -> dict:
        """All figures, including the derived ones, for JSON."""
        derived = ("required_memory", "fits", "min_seconds", "arithmetic_intensity", "utilization")
        figures = asdict(self)
        for values, step in zip(figures["steps"], self.steps):
            values |= {name: getattr(step, name) for name in derived if step.memory or name == "fits"}
        return figures | {"ready": self.ready, "min_chip_hours": self.min_chip_hours}

    def __str__(self):
        devices = f"{self.topology.replicas} device{'s' if self.topology.replicas > 1 else ''}"
        title = f"{self.name} on {self.topology.name} ({devices})"
        lines = [f"{title}, {self.precision}, {self.num_parameters / 1e6:.1f} M parameters"]
        for step in self.steps:
            lines += ["", *_step_lines(step, self.topology.replicas)]
        lines += [f"largest {kind} batch per device: {batch}" for kind, batch in self.largest_batch.items()]
        if hours := self.min_chip_hours:
            lines += [
                "",
                f"whole recipe            {self.total_steps:,} steps; lower bound on hours: "
                f"{hours / self.topology.num_chips:,.1f} ({hours:,.1f} chip-hours)",
            ]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "", "Ready." if self.ready else "Not ready."])


def _step_lines(step, replicas):
    yield f"{step.kind} step, {step.batch_size} images per device, {step.batch_size * replicas:,} in total"
    for problem in step.problems:
        yield f"  problem               {problem}"
    if not step.memory:
        return
    memory = step.memory
    verdict = "fits" if step.fits else "DOES NOT FIT"
    yield f"  memory                {step.required_memory / GB:.2f} of {step.memory_limit / GB:.2f} GB: {verdict}"
    yield (
        f"    arguments {memory['argument'] / GB:.2f}, temporaries {memory['temp'] / GB:.2f}, outputs "
        f"{(memory['output'] - memory['alias']) / GB:.2f}, code {memory['generated_code'] / GB:.2f} GB"
    )
    yield (
        f"  operations            {step.flops / 1e12:.3f} TFLOP, {step.bytes / GB:.1f} GB accessed, "
        f"{step.arithmetic_intensity:.0f} FLOP per byte"
    )
    yield (
        f"  lower bound on time   {1e3 * step.flops / step.peak_flops:.1f} ms by compute, "
        f"{1e3 * step.bytes / step.bandwidth:.1f} ms by memory bandwidth"
    )
    yield (
        f"  upper bound on speed  {step.batch_size * replicas / step.min_seconds:,.0f} images/s, "
        f"utilization (MFU) {step.utilization:.0%}"
    )
    if layers := [f"{layer} {size / 1e6:,.0f} MB" for layer, size in step.layer_memory if size >= 1e6]:
        yield "  largest live tensors  " + ", ".join(layers)
