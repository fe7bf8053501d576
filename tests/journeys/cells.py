"""The choices of a training, and a small set of runs in which every two of them meet (pairwise testing)."""

import itertools
import random
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Cell:
    """One run: what is trained, on which devices, with which options."""

    kind: str  # see training.RECIPES
    devices: str
    precision: str
    ema: bool
    accumulation: bool
    remat: str | None
    interrupted: bool

    def __str__(self):
        return "-".join([self.kind, self.devices, *self.options()])

    def options(self) -> list[str]:
        chosen = [name for name in ("ema", "accumulation", "remat", "interrupted") if getattr(self, name)]
        return [self.precision, *chosen]


CHOICES = {
    "kind": ("supervised", "several_labels", "masked_patch", "autoencoder", "distillation"),
    "devices": ("one", "mirrored2", "mirrored4", "workers2", "jax8"),
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
    "ema": (True, False),
    "accumulation": (False, True),
    "remat": (None, "block"),
    "interrupted": (False, True),
}
assert tuple(CHOICES) == tuple(field.name for field in fields(Cell))
# The teacher of a distillation runs on TensorFlow; recipes say so at once (runs/open_run.py).
IMPOSSIBLE = ({"kind": "distillation", "devices": "jax8"},)


def pairwise(seed: int = 5) -> list[Cell]:
    """Cells that contain every possible pair of choices: greedily, each covers the most pairs of some candidates.

    The seed is that of the fewest cells, 24, among 200.
    """
    generator, cells = random.Random(seed), []
    values = {name: [(name, value) for value in options] for name, options in CHOICES.items()}
    every = (
        pair for names in itertools.combinations(CHOICES, 2) for pair in itertools.product(*map(values.get, names))
    )
    missing = {pair for pair in every if possible(dict(pair))}
    while missing:
        first = min(missing, key=str)
        candidates = [cell for _ in range(60) if (cell := draw(generator, dict(first)))]
        best = max(candidates, key=lambda cell: len(missing & pairs(cell)))
        cells.append(best)
        missing -= pairs(best)
    return cells


def random_cells(seed: int, count: int) -> list[Cell]:
    """Cells drawn with a seed, without those that `pairwise` has."""
    generator, known, cells = random.Random(seed), set(pairwise()), []
    while len(cells) < count:
        cell = draw(generator, {})
        if cell and cell not in known and cell not in cells:
            cells.append(cell)
    return cells


def draw(generator, choices: dict) -> Cell | None:
    """A random cell with these choices; None if it is impossible."""
    values = {name: choices.get(name, generator.choice(options)) for name, options in CHOICES.items()}
    return Cell(**values) if possible(values) else None


def possible(choices: dict) -> bool:
    return not any(rule.items() <= choices.items() for rule in IMPOSSIBLE)


def pairs(cell: Cell) -> set:
    values = [(name, getattr(cell, name)) for name in CHOICES]
    return set(itertools.combinations(values, 2))
