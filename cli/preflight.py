"""`keras-vit preflight`: what a recipe costs on a TPU, and whether it fits, before one is rented."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.json_file import check_json


@dataclass(frozen=True)
class Preflight:
    """Compile a recipe's training and evaluation steps with the TPU's own compiler, without a TPU.

    Says whether they compile and fit, what they cost at least, and what wastes the chip. Fields of the recipe can be
    changed, such as --data.batch-size 1024, as for `keras-vit train`, whose `train NAME --help` lists them. The exit
    status is 1 if something does not fit.

    Args:
        name: Of a recipe, or a file recipe.json.
        topology: A slice of a TPU, chip and sides, such as v3:2x2, v5e:2x4 or v6e:2x2; v5e:1 is a single chip.
        batch: Images a device, instead of the recipe's batch shared by all devices.
        largest_batch: Also look for the largest batch of a device that fits (some minutes).
        classes: Of the recipe's data set, if it is not known.
        images: For training, of a data set that is not known: for the cost of the whole recipe.
        json: Write all figures into this file.
        list: List chips with memory, peak and bandwidth, and some topologies.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ""
    topology: str = "v5e:2x4"
    batch: int | None = None
    largest_batch: bool = False
    classes: int | None = None
    num_train_images: int | None = None
    json: Path | None = None
    list: bool = False
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> int:
        """Compiles, prints, and returns the exit status."""
        from keras_vit.recipes.preflight.chips import parse_topology

        if self.list:
            return _print_chips()
        if not self.name:
            raise ValueError("Name a recipe: keras-vit train lists them. --list shows chips and topologies.")
        check_json(self.json)
        parse_topology(self.topology)
        from keras_vit_cli.train import find_recipe

        recipe = find_recipe(self.name)
        recipe = tyro.cli(type(recipe), default=recipe, prog=f"keras-vit train {self.name}", args=self.changes)
        from keras_vit.recipes.preflight import preflight
        from keras_vit.recipes.remote_files import write_file

        report = preflight(
            recipe,
            self.topology,
            self.batch,
            classes=self.classes,
            num_train_images=self.num_train_images,
            find_largest=self.largest_batch,
            say=_say,
        )
        _say("")
        print(report)
        if self.json:
            write_file(self.json, json.dumps(report.as_dict(), indent=2) + "\n")
        return int(not report.ready)


def _say(text):
    """One line that is written over by the next, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _print_chips():
    from keras_vit.recipes.preflight.chips import CHIPS, GIB

    print("chip  devices  memory a device  bfloat16 peak  bandwidth   topologies, for example")
    for chip in CHIPS.values():
        print(
            f"{chip.name:5} {chip.devices:>7}  {chip.memory / GIB:>11.0f} GiB  {chip.peak / 1e12:>7.1f} TFLOP/s"
            f"  {chip.bandwidth / 1e9:>5.0f} GB/s  {', '.join(chip.slices)}"
        )
    print("A chip of v2 and v3 has two devices. Sources: recipes/preflight/chips.py")
    return 0
