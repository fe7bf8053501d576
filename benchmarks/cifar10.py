"""What pre-training without labels gains on CIFAR-10, against training from scratch with the same total compute.

Command: python benchmarks/cifar10.py --images FOLDER          (FOLDER/train/<class>/<image>, FOLDER/test/...)
         python benchmarks/cifar10.py --images FOLDER --starts scratch cifar10-mae     two rows of the table
         python benchmarks/cifar10.py --images FOLDER --starts                         the table so far

Finished runs in --runs are not repeated, interrupted ones are resumed. Pre-trained models continue with the recipe
`cifar10-finetune`, others start with `cifar10-scratch`, with 10 %, 1 % and 100 % of the labels and as many steps. The
learning rate of the first three starts is chosen with 10 % of the labels on the held-out last tenth of the training
images. All three chose the same one, which the others take untried. "long-scratch" has the cost of pre-training too.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.learning_rate_sweep import Sweep, sweep

# Steps of pre-training at batch size 256 that cost the same: multiply-adds of a step, forward and backward, with heads,
# decoder and 4.3 G of Muon, which at 2,000 steps of mean colors are 193 T.
PRETRAINING = {
    "cifar10-masked-patch": 2_000,
    "cifar10-masked-patch-downsampled": 1_450,
    "cifar10-masked-patch-pixels": 2_050,
    "cifar10-masked-patch-corrupt15": 2_140,
    "cifar10-mae": 4_940,
}
SCRATCH, LONG = "scratch", "long-scratch"
STARTS = (SCRATCH, *PRETRAINING, LONG)
LEARNING_RATES = (1e-3, 2e-3)
SEARCHED = (SCRATCH, "cifar10-masked-patch", "cifar10-mae")
CHOSEN_RATE = 2e-3
# Labels per class (None: all 5,000); steps at batch size 128; seeds, of which a long run from scratch takes the first.
# The first chooses the learning rate.
BUDGETS = {500: (800, (0, 1, 2)), 50: (400, (0, 1, 2)), None: (2_000, (0,))}
# Steps of supervised training at batch size 128 that cost what pre-training does.
PRETRAINING_COST = 3_740


@dataclass
class Cifar10:
    images: Path
    runs: Path = Path("runs/cifar10-study")
    starts: tuple[Literal[STARTS], ...] = STARTS
    labels: tuple[Literal["50", "all"], ...] = ("50", "all")  # beside 500
    precision: Literal["float32", "mixed_bfloat16"] = "mixed_bfloat16"  # float32 on CPUs without AMX and AVX512_BF16

    def recipe(self, name: str, folder: str, **fields):
        """A recipe of the configs on these images, resumable, in a separate folder."""
        recipe = replace(RECIPES[name], **fields)
        data = replace(recipe.data, dataset=f"folder:{self.images}")
        run = replace(recipe.run, folder=str(self.runs / folder), resume=True, precision=self.precision)
        return replace(recipe, data=data, run=run)


def finetuning(options: Cifar10, start: str, labels: int | None) -> Sweep:
    """The training with labels that follows a start: all learning rates, or the one that was chosen."""
    steps, seeds = BUDGETS[labels]
    steps += PRETRAINING_COST if start == LONG else 0
    weights = str(options.runs / start / run_recipe.MODEL) if start in PRETRAINING else None
    base = "cifar10-finetune" if weights else "cifar10-scratch"
    recipe = options.recipe(base, f"{start}-{labels or 'all'}", weights=weights, total_steps=steps)
    recipe = replace(
        recipe,
        data=replace(recipe.data, labels_per_class=labels),
        optimizer=replace(recipe.optimizer, warmup_steps=steps // 10),
    )
    return Sweep(recipe, LEARNING_RATES, "train[:90%]", "train[90%:]", seeds[:1] if start == LONG else seeds)


def run(options: Cifar10, start: str):
    """Pre-trains, then trains with each number of labels."""
    if start in PRETRAINING:
        run_recipe.run_unless_finished(options.recipe(start, start, total_steps=PRETRAINING[start]))
    rate, budgets = CHOSEN_RATE, list(BUDGETS)
    if start in SEARCHED:
        rate = sweep(finetuning(options, start, budgets.pop(0)))["learning_rate"]
    for labels in budgets:
        if str(labels or "all") in ("500", *options.labels):
            plan = finetuning(options, start, labels)
            recipe = replace(plan.recipe, optimizer=replace(plan.recipe.optimizer, learning_rate=rate))
            for seed in plan.seeds:
                seeded = replace(recipe.run, folder=f"{recipe.run.folder}/seed-{seed}", seed=seed)
                run_recipe.run_unless_finished(replace(recipe, run=seeded))


def print_table(options: Cifar10):
    print("\nMean and deviation of seeds of the training with labels; a start is pre-trained once.")
    print("\n| start | learning rate | 10 % of the labels | 1 % | 100 % |\n|---|---|---|---|---|")
    for start in STARTS:
        cells = []
        for labels in BUDGETS:
            folder = Path(finetuning(options, start, labels).recipe.run.folder)
            files = sorted(folder.glob(f"seed-*/{run_recipe.METRICS}"))
            cells.append(_mean([100 * json.loads(file.read_text())["top1"] for file in files]))
        found = Path(finetuning(options, start, next(iter(BUDGETS))).recipe.run.folder) / "sweep.json"
        rate = json.loads(found.read_text())["learning_rate"] if found.exists() else CHOSEN_RATE
        print(f"| {start} | {rate:g} | {' | '.join(cells)} |")


def _mean(values):
    if not values:
        return "not run"
    deviation = f" ± {np.std(values, ddof=1):.2f} ({len(values)} seeds)" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{deviation}"


def main(options: Cifar10):
    for start in options.starts:
        run(options, start)
    print_table(options)


if __name__ == "__main__":
    main(tyro.cli(Cifar10))
