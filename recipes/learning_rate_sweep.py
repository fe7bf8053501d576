"""The paper's protocol of fine-tuning (appendix B.1.1): choose the learning rate on a held-out part of the training
images, then train on all of them, three times.
"""

import json
import os
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.run_recipe import run_unless_finished

Metric = Literal["top1", "top5"]


@dataclass(frozen=True)
class Sweep:
    """Try learning rates on a held-out part of the training images; train on all of them with the best.

    Every run has a folder of its own in the recipe's `run.folder`; those that are finished already are not run again,
    those that were broken off go on.

    Args:
        recipe: What to train.
        learning_rates: To try; the paper's for its data sets.
        tuning_split, held_out_split: Of the training images, in TensorFlow Datasets' notation.
        seeds: Of the final runs.
        metric: That decides, the larger the better; "top5" is of more than 5 classes.
    """

    recipe: Supervised = field(default_factory=Supervised)
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    tuning_split: str = "train[:98%]"
    held_out_split: str = "train[98%:]"
    seeds: tuple[int, ...] = (0, 1, 2)
    metric: Metric = "top1"


def sweep(plan: Sweep) -> dict:
    """Runs a sweep.

    Returns:
        "tried": held-out metric by learning rate, None of a rate that diverged; "learning_rate": the best; "test":
        metric of each seed; "mean" and "deviation" (of a sample; 0.0 of a single seed).

    Raises:
        ValueError: The recipe names no folder, there is nothing to try, the metric is unknown, or the folder is of
            another recipe's runs.
        FloatingPointError: All rates diverged.
    """
    folder = plan.recipe.run.folder
    if not folder:
        raise ValueError("A sweep needs a place for its runs and its table: set run.folder.")
    if not plan.learning_rates or not plan.seeds:
        raise ValueError(f"A sweep needs learning_rates and seeds. Received: {plan.learning_rates} and {plan.seeds}")
    if plan.metric not in get_args(Metric):
        raise ValueError(f"`metric` must be one of {', '.join(get_args(Metric))}. Received: {plan.metric!r}")
    held_out = replace(
        plan.recipe.data,
        train_split=plan.tuning_split,
        validation_split=plan.held_out_split,
        test_split=plan.held_out_split,
    )
    tried = {}
    for rate in plan.learning_rates:
        recipe = _with(plan.recipe, f"{folder}/rate-{rate:g}", rate, plan.recipe.run.seed)
        try:
            tried[rate] = _figure(replace(recipe, data=held_out), plan.metric)
        except FloatingPointError as error:  # the edge is what the larger rates are there to find
            print(f"Learning rate {rate:g} diverged: {error}")
            tried[rate] = None
    converged = {rate: value for rate, value in tried.items() if value is not None}
    if not converged:
        raise FloatingPointError(f"All learning rates diverged: {plan.learning_rates}. Try smaller ones.")
    best = max(converged, key=converged.get)
    test = {seed: _figure(_with(plan.recipe, f"{folder}/seed-{seed}", best, seed), plan.metric) for seed in plan.seeds}
    values = list(test.values())
    outcome = {
        "tried": tried,
        "learning_rate": best,
        "test": test,
        "mean": float(np.mean(values)),
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
    }
    write_file(os.path.join(folder, "sweep.json"), json.dumps(outcome, indent=2) + "\n")
    return outcome


def table(outcome: dict, metric: str = "top1") -> str:
    """The outcome of `sweep` as a table in Markdown, in percent."""
    shown = {rate: "diverged" if value is None else f"{value:.2%}" for rate, value in outcome["tried"].items()}
    rows = [f"| learning rate {rate:g}, held out | {value} |" for rate, value in shown.items()]
    rows += [f"| seed {seed}, test | {value:.2%} |" for seed, value in outcome["test"].items()]
    best = f"**learning rate {outcome['learning_rate']:g}, test**"
    rows.append(f"| {best} | **{outcome['mean']:.2%} ± {outcome['deviation']:.2%}** |")
    return "\n".join([f"| | {metric} |", "|---|---|", *rows])


def _figure(recipe, metric):
    figures = run_unless_finished(recipe)
    if metric not in figures:
        raise ValueError(f"The runs have no figure {metric!r}, but {', '.join(figures)}. Choose another metric.")
    return figures[metric]


def _with(recipe, folder, learning_rate, seed):
    run = replace(recipe.run, folder=folder, seed=seed, resume=True)
    return replace(recipe, run=run, optimizer=replace(recipe.optimizer, learning_rate=learning_rate))
