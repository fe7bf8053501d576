"""What pre-training without labels gains on CIFAR-10, against training from scratch with the same total compute.

Command: python benchmarks/cifar10.py --images FOLDER          (FOLDER/train/<class>/<image>, FOLDER/test/...)
         python benchmarks/cifar10.py --images FOLDER --starts scratch cifar10-mae     two rows of the table
         python benchmarks/cifar10.py --images FOLDER --starts                         the table so far

Finished runs in --runs are not repeated, interrupted ones are resumed. Pre-trained models continue with the recipe
`cifar10-finetune`, others start with `cifar10-scratch`, with 1 %, 10 % and 100 % of the labels and as many steps.
"long-scratch" has the steps of pre-training too.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES

# Steps of pre-training at batch size 256. An image costs a masked autoencoder 2.7 times less.
PRETRAINING = {
    "cifar10-masked-patch": 2_000,
    "cifar10-masked-patch-downsampled": 2_000,
    "cifar10-masked-patch-pixels": 2_000,
    "cifar10-masked-patch-corrupt15": 2_000,
    "cifar10-mae": 5_400,
}
SCRATCH, LONG = "scratch", "long-scratch"
STARTS = (SCRATCH, *PRETRAINING, LONG)
# Labels per class (None: all 5,000); steps at batch size 128; seeds, of which a long run from scratch takes the first.
BUDGETS = {50: (400, (0, 1, 2)), 500: (800, (0, 1, 2)), None: (2_000, (0,))}
# Steps at batch size 128 that cost what pre-training does: 2,000 steps at batch size 256.
PRETRAINING_COST = 4_000


@dataclass
class Cifar10:
    images: Path
    runs: Path = Path("runs/cifar10-study")
    starts: tuple[Literal[STARTS], ...] = STARTS
    labels: tuple[Literal["50", "500", "all"], ...] = ("50", "500", "all")
    precision: Literal["float32", "mixed_bfloat16"] = "mixed_bfloat16"  # float32 is faster on CPUs without AMX

    def recipe(self, name: str, folder: str, **fields):
        """A recipe of the configs on these images, resumable, in a separate folder."""
        recipe = replace(RECIPES[name], **fields)
        data = replace(recipe.data, dataset=f"folder:{self.images}")
        run = replace(recipe.run, folder=str(self.runs / folder), resume=True, precision=self.precision)
        return replace(recipe, data=data, run=run)


def finetuning(options: Cifar10, start: str, labels: int | None, seed: int):
    steps = BUDGETS[labels][0] + (PRETRAINING_COST if start == LONG else 0)
    weights = str(options.runs / start / run_recipe.MODEL) if start in PRETRAINING else None
    base = "cifar10-finetune" if weights else "cifar10-scratch"
    recipe = options.recipe(base, f"{start}-{labels or 'all'}-{seed}", weights=weights, total_steps=steps)
    return replace(
        recipe,
        data=replace(recipe.data, labels_per_class=labels),
        optimizer=replace(recipe.optimizer, warmup_steps=steps // 10),
        run=replace(recipe.run, seed=seed),
    )


def cases(options: Cifar10, start: str):
    """Labels per class and the recipes of a start, a list with one for each seed; the shortest first."""
    for labels, (_, seeds) in BUDGETS.items():
        used = seeds[:1] if start == LONG else seeds
        yield labels, [finetuning(options, start, labels, seed) for seed in used]


def run(recipe):
    if not (Path(recipe.run.folder) / run_recipe.METRICS).exists():
        print(f"\n== {recipe.run.folder}", flush=True)
        run_recipe.run(recipe)


def print_table(options: Cifar10):
    print("\n| start | 1 % of the labels | 10 % | 100 % |\n|---|---|---|---|")
    for start in STARTS:
        cells = []
        for _, recipes in cases(options, start):
            files = [Path(recipe.run.folder) / run_recipe.METRICS for recipe in recipes]
            cells.append(_mean([100 * json.loads(file.read_text())["top1"] for file in files if file.exists()]))
        print(f"| {start} | {' | '.join(cells)} |")


def _mean(values):
    if not values:
        return "not run"
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def main(options: Cifar10):
    for start in options.starts:
        if start in PRETRAINING:
            run(options.recipe(start, start, total_steps=PRETRAINING[start]))
        for labels, recipes in cases(options, start):
            if str(labels or "all") in options.labels:
                for recipe in recipes:
                    run(recipe)
    print_table(options)


if __name__ == "__main__":
    main(tyro.cli(Cifar10))
