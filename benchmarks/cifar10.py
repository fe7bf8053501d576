"""What pre-training without labels gains on CIFAR-10, against training from scratch with the same total compute.

Command: python benchmarks/cifar10.py --images FOLDER          (FOLDER/train/<class>/<image>, FOLDER/test/...)
         python benchmarks/cifar10.py --images FOLDER --only table     the results so far

Finished runs in --runs are not repeated, interrupted ones are resumed. Pre-trained models continue with the recipe
`cifar10-finetune`, others start with `cifar10-scratch`, with 1 %, 10 % and 100 % of the labels and as many steps.
"scratch, same total" has the steps of pre-training too.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES

PRETRAINING = {
    "masked patches, mean color, 50 %": "cifar10-masked-patch",
    "masked patches, 4 x 4 colors, 50 %": "cifar10-masked-patch-downsampled",
    "masked patches, pixels (L2), 50 %": "cifar10-masked-patch-pixels",
    "masked patches, mean color, 15 %": "cifar10-masked-patch-corrupt15",
    "masked autoencoder, 75 %": "cifar10-mae",
}
SCRATCH, LONG = "scratch", "scratch, same total"
# Labels per class (None: all 5,000); steps at batch size 128; seeds, of which a long run from scratch takes the first.
BUDGETS = {50: (400, (0, 1, 2)), 500: (800, (0, 1, 2)), None: (2_000, (0,))}
# Steps at batch size 128 that cost what pre-training does: 3,900 steps at batch size 256.
PRETRAINING_STEPS = 7_800


@dataclass
class Cifar10:
    images: Path
    runs: Path = Path("runs/cifar10-study")
    only: Literal["all", "pretraining", "finetuning", "table"] = "all"

    def recipe(self, name: str, folder: str, **fields):
        """A recipe of the configs on these images, resumable, in a separate folder."""
        recipe = replace(RECIPES[name], **fields)
        data = replace(recipe.data, dataset=f"folder:{self.images}")
        return replace(recipe, data=data, run=replace(recipe.run, folder=str(self.runs / folder), resume=True))


def finetuning(options: Cifar10, start: str, labels: int | None, seed: int):
    steps = BUDGETS[labels][0] + (PRETRAINING_STEPS if start == LONG else 0)
    weights = str(options.runs / PRETRAINING[start] / run_recipe.MODEL) if start in PRETRAINING else None
    name = PRETRAINING.get(start, start.replace(", ", "-").replace(" ", "-"))
    folder = f"{name}-{labels or 'all'}-{seed}"
    base = "cifar10-finetune" if weights else "cifar10-scratch"
    recipe = options.recipe(base, folder, weights=weights, total_steps=steps)
    return replace(
        recipe,
        data=replace(recipe.data, labels_per_class=labels),
        optimizer=replace(recipe.optimizer, warmup_steps=steps // 10),
        run=replace(recipe.run, seed=seed),
    )


def cases(options: Cifar10):
    """Labels per class and the recipes of each start, a list with one for each seed; the shortest first."""
    for labels, (_, seeds) in BUDGETS.items():
        for start in (SCRATCH, *PRETRAINING, LONG):
            used = seeds[:1] if start == LONG else seeds
            yield labels, start, [finetuning(options, start, labels, seed) for seed in used]


def run(recipe):
    if not (Path(recipe.run.folder) / run_recipe.METRICS).exists():
        print(f"\n== {recipe.run.folder}", flush=True)
        run_recipe.run(recipe)


def print_table(options: Cifar10):
    print("\n| start | 1 % of the labels | 10 % | 100 % |\n|---|---|---|---|")
    cells: dict[str, list[str]] = {}
    for _, start, recipes in cases(options):
        files = [Path(recipe.run.folder) / run_recipe.METRICS for recipe in recipes]
        values = [100 * json.loads(file.read_text())["top1"] for file in files if file.exists()]
        cells.setdefault(start, []).append(_mean(values))
    for start, row in cells.items():
        print(f"| {start} | {' | '.join(row)} |")


def _mean(values):
    if not values:
        return "not run"
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def main(options: Cifar10):
    if options.only in ("all", "pretraining"):
        for name in PRETRAINING.values():
            run(options.recipe(name, name))
    if options.only in ("all", "finetuning"):
        for _, _, recipes in cases(options):
            for recipe in recipes:
                run(recipe)
    print_table(options)


if __name__ == "__main__":
    main(tyro.cli(Cifar10))
