"""What a preflight found, as figures and as a table."""

from dataclasses import asdict, dataclass, field

from keras_vit.recipes.preflight.chips import GB, Topology


@dataclass(frozen=True)
class StepReport:
    """One compiled step, of one device.

    Attributes:
        kind: "training", "evaluation" or "inference".
        batch: Images a device.
        problems: Why it cannot run; empty if it compiles.
        memory: Bytes, by kind: "argument" (weights, optimizer, a batch), "output" (of which "alias" are the arguments'
            own), "temp", "generated_code".
        limit: Bytes that a device has.
        flops, bytes: Operations, and bytes to and from memory, as the compiler counts them.
        peak, bandwidth: The device's, a second.
        layers: Those that hold most temporary memory at the fullest moment, and their bytes.
        seconds, compiler_memory: What the compilation took; 0 s if the answer was kept from before.
    """

    kind: str
    batch: int
    limit: float
    peak: float
    bandwidth: float
    problems: tuple[str, ...] = ()
    memory: dict[str, float] = field(default_factory=dict)
    flops: float = 0.0
    bytes: float = 0.0
    layers: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0
    compiler_memory: float = 0.0

    @property
    def needed(self) -> float:
        """Bytes of memory in all."""
        memory = self.memory
        return sum(memory.values()) - 2 * memory["alias"] if memory else 0.0

    @property
    def fits(self) -> bool:
        return not self.problems and self.needed <= self.limit

    @property
    def floor(self) -> float:
        """Seconds that no run of the step can be under: of the arithmetic at its peak, or of the traffic."""
        return max(self.flops / self.peak, self.bytes / self.bandwidth)

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes

    @property
    def utilization(self) -> float:
        """Share of the peak (MFU) at the floor: a bound from above."""
        return self.flops / self.peak / self.floor


@dataclass(frozen=True)
class Report:
    """A preflight.

    Attributes:
        name: Of the recipe or model.
        topology: Where it would run.
        precision: Of the model.
        parameters: Of the model.
        steps: Reports of the compiled steps, the training step first if there is one.
        updates: Of the whole recipe; None if not known.
        notes: What is no obstacle but worth knowing.
        largest: The largest batch of a device that fits, by kind of step, where it was searched for.
    """

    name: str
    topology: Topology
    precision: str
    parameters: int
    steps: tuple[StepReport, ...]
    updates: int | None = None
    notes: tuple[str, ...] = ()
    largest: dict[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether everything compiles and fits."""
        return all(step.fits for step in self.steps)

    @property
    def chip_hours(self) -> float | None:
        """Chip-hours of all updates at the floor, without evaluations and input."""
        training = next((step for step in self.steps if step.kind == "training" and step.memory), None)
        return training and self.updates and self.updates * training.floor * self.topology.chips / 3600

    def as_dict(self) -> dict:
        """For JSON: all figures, bounds too."""
        bounds = ("needed", "fits", "floor", "intensity", "utilization")
        found = asdict(self)
        for values, step in zip(found["steps"], self.steps):
            values |= {name: getattr(step, name) for name in bounds if step.memory or name == "fits"}
        return found | {"ready": self.ready, "chip_hours": self.chip_hours}

    def __str__(self):
        devices = f"{self.topology.replicas} device{'s' if self.topology.replicas > 1 else ''}"
        place = f"{self.name} on {self.topology.name} ({devices})"
        lines = [f"{place}, {self.precision}, {self.parameters / 1e6:.1f} M parameters"]
        for step in self.steps:
            lines += ["", *_step(step, self.topology.replicas)]
        lines += [f"largest {kind} batch a device: {batch}" for kind, batch in self.largest.items()]
        if self.chip_hours:
            lines += [
                "",
                f"whole recipe        {self.updates:,} updates, at least {self.chip_hours:,.1f} chip-hours "
                f"({self.chip_hours / self.topology.chips:,.1f} hours)",
            ]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "", "Ready." if self.ready else "Not ready."])


def _step(step, replicas):
    yield f"{step.kind} step, {step.batch} images a device, {step.batch * replicas:,} in all"
    for problem in step.problems:
        yield f"  problem           {problem}"
    if not step.memory:
        return
    memory = step.memory
    verdict = "fits" if step.fits else "DOES NOT FIT"
    yield f"  memory            {step.needed / GB:.2f} of {step.limit / GB:.2f} GB: {verdict}"
    yield (
        f"    arguments {memory['argument'] / GB:.2f}, temporaries {memory['temp'] / GB:.2f}, results "
        f"{(memory['output'] - memory['alias']) / GB:.2f}, code {memory['generated_code'] / GB:.2f} GB"
    )
    tflop, moved = step.flops / 1e12, step.bytes / GB
    yield f"  arithmetic        {tflop:.3f} TFLOP, {moved:.1f} GB moved, {step.intensity:.0f} FLOP a byte"
    yield (
        f"  at least          {1e3 * step.flops / step.peak:.1f} ms by arithmetic, "
        f"{1e3 * step.bytes / step.bandwidth:.1f} ms by memory"
    )
    yield (
        f"  at most           {step.batch * replicas / step.floor:,.0f} images/s, MFU {step.utilization:.0%} "
        "(bounds, not promises)"
    )
    if layers := [f"{layer} {size / 1e6:,.0f} MB" for layer, size in step.layers if size >= 1e6]:
        yield "  fullest layers    " + ", ".join(layers)
