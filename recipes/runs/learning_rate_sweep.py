"""The paper's fine-tuning protocol (appendix B.1.1): choose the learning rate on held-out training images, then train
on all of them with several seeds. TensorFlow is imported only when a sweep runs.
"""

import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from keras_vit.intervals import percent, wilson_interval
from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.values import Checked

Metric = Literal["top1", "top5"]


@dataclass(frozen=True)
class Sweep(Checked):
    """Try learning rates on held-out images, then train on all training images of the recipe with the best one.

    Each run has a subfolder of the recipe's `run.folder`. Finished runs are not repeated, interrupted ones are resumed.

    Args:
        recipe: What to train.
        learning_rates: Learning rates to try. Defaults to the paper's for most of its datasets.
        tuning_split, held_out_split: What the learning rates are tried on, in TensorFlow Datasets' notation. Defaults
            to the recipe's training and validation splits, or, without validation images other than the test images, to
            98 and 2 % of its training split.
        seeds: Seeds of the final runs.
        metric: The metric to maximize; "top5" requires more than 5 classes.
    """

    recipe: Supervised = field(default_factory=Supervised)
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    tuning_split: str | None = None
    held_out_split: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    metric: Metric = "top1"

    def _check_runs(self):
        if empty := [name for name in ("learning_rates", "seeds") if not getattr(self, name)]:
            defaults = {name: getattr(Sweep, name) for name in empty}
            raise RecipeError("A sweep requires learning rates and seeds.", dict.fromkeys(empty, ()), defaults)


def tuning_and_held_out(plan: Sweep) -> tuple[str, str]:
    """The splits of the runs that choose the learning rate.

    Raises:
        RecipeError: Only one is given, or none and the recipe's splits do not determine them.
    """
    tuning, held_out, data = plan.tuning_split, plan.held_out_split, plan.recipe.data
    if tuning and held_out:
        return tuning, held_out
    train = data.train_split
    if tuning or held_out:
        problem = "One of them is missing"
    elif data.validation_split and data.validation_split != data.test_split:
        return train, data.validation_split
    elif not re.search(r"[\[+]", train):
        return f"{train}[:98%]", f"{train}[98%:]"
    else:
        problem = f"The recipe's training split is {train}, and it has no validation split of its own"
    raise RecipeError(
        f"A sweep tries learning rates on two parts of the training images, of which it tunes on one. {problem}.",
        {"tuning_split": tuning, "held_out_split": held_out},
        {"tuning_split": "train[:70%]", "held_out_split": "train[70%:80%]"},
    )


def sweep(plan: Sweep) -> dict:
    """Runs a sweep and writes the result to sweep.json in the recipe's folder.

    Returns:
        "held_out": the held-out metric by learning rate, None if it diverged; "held_out_images": their number;
        "learning_rate": the best one; "test": the test metric by seed; "mean" and "std" of these (sample standard
        deviation, 0.0 for a single seed).

    Raises:
        ValueError: The recipe has no folder, there are no held-out images, or the folder contains runs of another
            recipe.
        FloatingPointError: All learning rates diverged, or a final run did.
    """
    from keras_vit.recipes.processes.strategies import choose_strategy
    from keras_vit.recipes.processes.workers import Workers
    from keras_vit.recipes.remote_files import write_file
    from keras_vit.recipes.runs.folder import required_folder

    folder = required_folder(plan.recipe)
    tuning, held = tuning_and_held_out(plan)
    tuning_data = replace(plan.recipe.data, train_split=tuning, validation_split=held, test_split=held)
    held_out: dict[float, float | None] = {}
    images = 0
    for rate in plan.learning_rates:
        recipe = _run_recipe(plan.recipe, f"{folder}/rate-{rate:g}", rate, plan.recipe.run.seed)
        try:
            held_out[rate], images = _metric(replace(recipe, data=tuning_data), plan.metric)
        except FloatingPointError as error:  # expected of the largest rates
            print(f"Learning rate {rate:g} diverged: {error}")
            held_out[rate] = None
    converged = {rate: value for rate, value in held_out.items() if value is not None}
    if not converged:
        raise FloatingPointError(f"All learning rates diverged: {plan.learning_rates}. Try smaller ones.")
    best = max(converged, key=lambda rate: converged[rate])
    test = {
        seed: _metric(_run_recipe(plan.recipe, f"{folder}/seed-{seed}", best, seed), plan.metric)[0]
        for seed in plan.seeds
    }
    values = list(test.values())
    result = {
        "held_out": held_out,
        "held_out_images": images,
        "learning_rate": best,
        "test": test,
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
    }
    if Workers(choose_strategy(plan.recipe.run.strategy, plan.recipe.run.join_seconds)).chief:
        write_file(os.path.join(folder, "sweep.json"), json.dumps(result, indent=2) + "\n")
    return result


def markdown_table(result: dict, metric: str = "top1") -> str:
    """The result of `sweep` as a Markdown table, in percent; names learning rates that are as good within chance.

    Those are the ones whose 95 % interval contains the best value: a sweep of few images decides little.
    """
    held_out, images, equal = {}, result["held_out_images"], []
    for rate, value in result["held_out"].items():
        held_out[rate] = "diverged" if value is None else percent(round(value * images), images)
        if value is not None and rate != result["learning_rate"]:
            _, high = wilson_interval(round(value * images), images)
            equal += [f"{rate:g}"] if high >= result["held_out"][result["learning_rate"]] else []
    rows = [f"| learning rate {rate:g}, held out | {value} |" for rate, value in held_out.items()]
    rows += [f"| seed {seed}, test | {value:.2%} |" for seed, value in result["test"].items()]
    best = f"**learning rate {result['learning_rate']:g}, test**"
    spread = f" ± {result['std']:.2%}" if len(result["test"]) > 1 else ""
    rows.append(f"| {best} | **{result['mean']:.2%}{spread}** |")
    note = f"On {images:,} held-out images, {', '.join(equal)} may be as good: the difference is within chance."
    return "\n".join([f"| | {metric} |", "|---|---|", *rows, *(["", note] if equal else [])])


def _metric(recipe, metric) -> tuple[float, int]:
    """A metric of a run, and the number of images that it is of."""
    from keras_vit.recipes.run_recipe import run_unless_finished

    metrics = run_unless_finished(recipe)
    if metric not in metrics:
        raise ValueError(f"The runs have no metric {metric!r}, only {', '.join(metrics)}. Choose another metric.")
    return metrics[metric], int(metrics["images"])


def _run_recipe(recipe, folder, learning_rate, seed):
    run = replace(recipe.run, folder=folder, seed=seed, resume=True)
    return replace(recipe, run=run, optimizer=replace(recipe.optimizer, learning_rate=learning_rate))
