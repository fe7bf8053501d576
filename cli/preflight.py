"""`keras-vit preflight`: memory and cost of a recipe on a TPU, before one is rented."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit.recipes.recipe_errors import check_all
from keras_vit_cli.given_paths import check_weights
from keras_vit_cli.option_words import check_option_words
from keras_vit_cli.output_folder import check_json
from keras_vit_cli.start_checks import check_architecture, check_fields, parse_fields


@dataclass(frozen=True)
class Preflight:
    """Compile a recipe's training and evaluation steps with the TPU's own compiler, without a TPU.

    Prints whether they compile and fit in memory, bounds on their speed and cost, and sizes that waste the chip. Fields
    of the recipe can be overridden, such as --data.batch-size 1024, as for `keras-vit train`; `keras-vit train NAME
    --help` lists them. The exit status is 1 if a step does not compile or fit. With .tflite files, it compiles them for
    the NPUs of phones: `keras-vit preflight --npu --help`.

    Args:
        name: Name of a recipe, or a file recipe.json.
        topology: TPU slice, chip and sides, such as v3:2x2, v5e:2x4 or v6e:2x2; v5e:1 is a single chip.
        device_batch_size: Images per device. Defaults to the recipe's batch size divided by the number of devices.
        largest_batch: Also search for the largest per-device batch that fits (some minutes).
        num_classes: Number of classes of the recipe's dataset, if it is unknown.
        num_train_images: Number of training images of the recipe's dataset, if it is unknown: for the total cost.
        json: Write all figures to this file.
        list: List chips with memory, peak FLOP/s and bandwidth, and example topologies.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ""
    topology: str = "v5e:2x4"
    device_batch_size: int | None = None
    largest_batch: bool = False
    num_classes: int | None = None
    num_train_images: int | None = None
    json: Path | None = None
    list: bool = False
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> int:
        """Compiles, prints the report, and returns the exit status."""
        if self.list:
            return _print_chips()
        if not self.name:
            raise ValueError(
                "Pass the name of a recipe; keras-vit train lists them. --list lists chips and topologies."
            )
        check_json(self.json)
        from keras_vit_cli.train import find_recipe

        named = find_recipe(self.name)
        check_option_words(self.changes, named)
        recipe = parse_fields(named, f"keras-vit train {self.name}", self.changes)
        check_all(
            lambda: check_fields(recipe),
            # Those of the recipe may be of a run that is still to come.
            lambda: check_weights(recipe.weights if recipe.weights != named.weights else None),
            lambda: check_architecture(recipe, named),
        )
        from keras_vit.recipes.preflight.report import parse_topology

        parse_topology(self.topology)
        from keras_vit.atomic_write import write_file
        from keras_vit.recipes.preflight import preflight

        report = preflight(
            recipe,
            self.topology,
            self.device_batch_size,
            num_classes=self.num_classes,
            num_train_images=self.num_train_images,
            find_largest_batch=self.largest_batch,
            log=show_progress,
        )
        show_progress("")
        print(report)
        if self.json:
            write_file(self.json, json.dumps(report.as_dict(), indent=2) + "\n")
        return int(not report.ready)


def show_progress(text: str):
    """Overwrites a single line of a terminal; in a log, each text has a line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _print_chips():
    from keras_vit.recipes.preflight.report import CHIPS, GIB

    print("chip  devices  memory/device  peak bfloat16  bandwidth   example topologies")
    for chip in CHIPS.values():
        print(
            f"{chip.name:5} {chip.devices:>7}  {chip.memory / GIB:>9.0f} GiB  {chip.peak_flops / 1e12:>5.1f} TFLOP/s"
            f"  {chip.bandwidth / 1e9:>4.0f} GB/s  {', '.join(chip.slices)}"
        )
    print("A v2 or v3 chip has two devices. Sources: recipes/preflight/report.py")
    return 0
