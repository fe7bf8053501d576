"""Gain of masked-patch pre-training on CIFAR-10, by target and fraction of corrupted patches.

Command: python benchmarks/cifar10.py --images FOLDER          (FOLDER/train/<class>/<image>, FOLDER/test/...)
         python benchmarks/cifar10.py --images FOLDER --only targets     one part: two processes can share the work

Finished runs in --runs are not repeated, interrupted ones are resumed. `--only table` prints the results so far.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
import tyro

import keras_vit
from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.evaluation import few_shot
from keras_vit.recipes.recipe import Data

TARGETS = {
    "mean color, 50 %": "cifar10-masked-patch",
    "4 x 4 colors, 50 %": "cifar10-masked-patch-downsampled",
    "pixels (L2), 50 %": "cifar10-masked-patch-pixels",
    "mean color, 15 %": "cifar10-masked-patch-corrupt15",
}
# Shorter than the recipes, so that everything trains within four hours on two CPU cores.
PRETRAINING_STEPS, PRETRAINING_WARMUP = 3_000, 300  # batch size 256: 15 epochs
SHORT_STEPS, SHORT_WARMUP = 400, 100  # for each target: 2 epochs
# Labels per class (None: all 5,000), and steps at batch size 128, the same from scratch and pre-trained.
BUDGETS = {50: 400, 500: 800, None: 2_400}


@dataclass
class Cifar10:
    images: Path
    runs: Path = Path("runs/cifar10")
    seeds: tuple[int, ...] = (0,)
    only: Literal["all", "pretraining", "targets", "scratch", "pretrained", "table"] = "all"
    num_threads: int = 1

    def recipe(self, name: str, folder: str, **fields):
        """A recipe of the configs on these images, resumable, in a separate folder."""
        recipe = replace(RECIPES[name], **fields)
        data = replace(recipe.data, dataset=f"folder:{self.images}")
        return replace(recipe, data=data, run=replace(recipe.run, folder=str(self.runs / folder), resume=True))


def run(recipe) -> dict:
    finished = Path(recipe.run.folder) / run_recipe.METRICS
    if not finished.exists():
        print(f"\n== {recipe.run.folder}", flush=True)
        run_recipe.run(recipe)
    return json.loads(finished.read_text())


def pretraining(options: Cifar10):
    recipe = options.recipe("cifar10-masked-patch", "pretraining", total_steps=PRETRAINING_STEPS)
    return replace(recipe, optimizer=replace(recipe.optimizer, warmup_steps=PRETRAINING_WARMUP))


def targets(options: Cifar10) -> dict:
    return {title: _short(options, name) for title, name in TARGETS.items()}


def _short(options, name):
    recipe = options.recipe(name, f"targets/{name}", total_steps=SHORT_STEPS)
    return replace(recipe, optimizer=replace(recipe.optimizer, warmup_steps=SHORT_WARMUP))


def finetuning(options: Cifar10, start: str, labels: int | None, seed: int):
    weights = str(options.runs / "pretraining" / run_recipe.MODEL) if start == "pretrained" else None
    folder = f"labels-{labels or 'all'}/{start}-{seed}"
    recipe = options.recipe("cifar10-scratch", folder, weights=weights, total_steps=BUDGETS[labels])
    return replace(recipe, data=replace(recipe.data, labels_per_class=labels), run=replace(recipe.run, seed=seed))


def few_shot_row(options: Cifar10, recipe) -> dict:
    """Few-shot accuracies of a pre-trained model, stored in its folder."""
    file = Path(recipe.run.folder) / "few_shot.json"
    if not file.exists():
        model = keras_vit.load(str(Path(recipe.run.folder) / run_recipe.MODEL))
        data = Data(dataset=f"folder:{options.images}")
        plan = few_shot.FewShot(data, shots=(1, 5, 10, 25, 100), batch_size=250, preprocessing="weights")
        file.write_text(json.dumps(few_shot.few_shot(model, plan)))
    return json.loads(file.read_text())


def print_tables(options: Cifar10):
    print("\n| labels | steps | from scratch | pre-trained | gain, points |\n|---|---|---|---|---|")
    for labels, steps in BUDGETS.items():
        found = {}
        for start in ("scratch", "pretrained"):
            files = [
                Path(finetuning(options, start, labels, seed).run.folder) / run_recipe.METRICS for seed in options.seeds
            ]
            found[start] = [100 * json.loads(file.read_text())["top1"] for file in files if file.exists()]
        gain = np.mean(found["pretrained"]) - np.mean(found["scratch"]) if all(found.values()) else np.nan
        cells = " | ".join(_mean(values) for values in found.values())
        print(f"| {labels or 'all 5,000'} per class | {steps:,} | {cells} | {gain:+.2f} |")
    print("\n| few-shot accuracy, % | 1 | 5 | 10 | 25 | 100 per class |\n|---|---|---|---|---|---|")
    rows = {**targets(options), "mean color, 50 %, 3,000 steps": pretraining(options)}
    for title, recipe in rows.items():
        if (Path(recipe.run.folder) / run_recipe.MODEL).exists():
            values = few_shot_row(options, recipe).values()
            print(f"| {title} | " + " | ".join(_mean(100 * np.array(value)) for value in values) + " |")


def _mean(values):
    if len(values) == 0:
        return "not run"
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def main(options: Cifar10):
    tf.config.threading.set_intra_op_parallelism_threads(options.num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.num_threads)
    if options.only in ("all", "pretraining"):
        run(pretraining(options))
    if options.only in ("all", "targets"):
        for recipe in targets(options).values():
            run(recipe)
    for start in ("scratch", "pretrained"):
        if options.only in ("all", start):
            for seed in options.seeds:
                for labels in BUDGETS:
                    run(finetuning(options, start, labels, seed))
    print_tables(options)


if __name__ == "__main__":
    main(tyro.cli(Cifar10))
