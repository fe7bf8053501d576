"""The paper's fine-tuning protocol (appendix B.1.1): choose the learning rate on held-out training images, then train
on all of them with several seeds.
"""

import json
import os
from dataclasses import replace

import numpy as np

from keras_vit.recipes.checkpoints.run_folder import required_folder
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.run_recipe import run_unless_finished
from keras_vit.recipes.sweep_plan import Sweep, tuning_and_held_out


def sweep(plan: Sweep) -> dict:
    """Runs a sweep and writes the result to sweep.json in the recipe's folder.

    Returns:
        "held_out": the held-out metric by learning rate, None if it diverged; "learning_rate": the best one; "test":
        the test metric by seed; "mean" and "std" of these (sample standard deviation, 0.0 for a single seed).

    Raises:
        ValueError: The recipe has no folder, there are no held-out images, or the folder contains runs of another
            recipe.
        FloatingPointError: All learning rates diverged, or a final run did.
    """
    folder = required_folder(plan.recipe)
    tuning, held = tuning_and_held_out(plan)
    tuning_data = replace(plan.recipe.data, train_split=tuning, validation_split=held, test_split=held)
    held_out: dict[float, float | None] = {}
    for rate in plan.learning_rates:
        recipe = _run_recipe(plan.recipe, f"{folder}/rate-{rate:g}", rate, plan.recipe.run.seed)
        try:
            held_out[rate] = _metric(replace(recipe, data=tuning_data), plan.metric)
        except FloatingPointError as error:  # expected of the largest rates
            print(f"Learning rate {rate:g} diverged: {error}")
            held_out[rate] = None
    converged = {rate: value for rate, value in held_out.items() if value is not None}
    if not converged:
        raise FloatingPointError(f"All learning rates diverged: {plan.learning_rates}. Try smaller ones.")
    best = max(converged, key=lambda rate: converged[rate])
    test = {
        seed: _metric(_run_recipe(plan.recipe, f"{folder}/seed-{seed}", best, seed), plan.metric) for seed in plan.seeds
    }
    values = list(test.values())
    result = {
        "held_out": held_out,
        "learning_rate": best,
        "test": test,
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
    }
    write_file(os.path.join(folder, "sweep.json"), json.dumps(result, indent=2) + "\n")
    return result


def markdown_table(result: dict, metric: str = "top1") -> str:
    """The result of `sweep` as a Markdown table, in percent."""
    held_out = {rate: "diverged" if value is None else f"{value:.2%}" for rate, value in result["held_out"].items()}
    rows = [f"| learning rate {rate:g}, held out | {value} |" for rate, value in held_out.items()]
    rows += [f"| seed {seed}, test | {value:.2%} |" for seed, value in result["test"].items()]
    best = f"**learning rate {result['learning_rate']:g}, test**"
    spread = f" ± {result['std']:.2%}" if len(result["test"]) > 1 else ""
    rows.append(f"| {best} | **{result['mean']:.2%}{spread}** |")
    return "\n".join([f"| | {metric} |", "|---|---|", *rows])


def _metric(recipe, metric):
    metrics = run_unless_finished(recipe)
    if metric not in metrics:
        raise ValueError(f"The runs have no metric {metric!r}, only {', '.join(metrics)}. Choose another metric.")
    return metrics[metric]


def _run_recipe(recipe, folder, learning_rate, seed):
    run = replace(recipe.run, folder=folder, seed=seed, resume=True)
    return replace(recipe, run=run, optimizer=replace(recipe.optimizer, learning_rate=learning_rate))
