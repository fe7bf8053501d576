"""VTAB-1k: fine-tunes a checkpoint on its 19 tasks by the paper's recipe, and averages the accuracies."""

import json
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from keras_vit.recipes import run_recipe
from keras_vit.recipes.configs.vtab import GROUPS, RECIPES, TASKS
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.runs.folder import check_resumable, find_checkpoints
from keras_vit.weights.files import METRICS


@dataclass(frozen=True)
class VtabResult:
    """Top-1 accuracies in [0, 1].

    Attributes:
        tasks: Accuracy by task.
        means: Mean accuracy by group, and of all tasks as "all"; empty unless all tasks are finished.
    """

    tasks: dict[str, float]
    means: dict[str, float] = field(default_factory=dict)


def run_vtab(
    weights: str,
    folder: str | Path,
    *,
    data_dir: str | None = None,
    tasks: tuple[str, ...] = (),
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
    std: tuple[float, float, float] = (0.5, 0.5, 0.5),
) -> VtabResult:
    """Fine-tunes a checkpoint on VTAB-1k, one run per task in folder/<task>, and writes folder/vtab.json.

    Finished tasks are not run again, interrupted ones are resumed. When a task fails, the others still run. The result
    has all finished tasks of the folder.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        folder: Local folder of the runs.
        data_dir: Folder of prepared datasets; None for the default of TensorFlow Datasets.
        tasks: Names of some of `keras_vit.recipes.configs.vtab.TASKS`; all by default.
        mean, std: Of the pixels that the weights were trained on.

    Raises:
        ValueError: A task is unknown, `folder` is a file, or it contains runs of other weights; or, at the end, tasks
            failed: vtab.json has the others.
        OSError: The weights or a dataset cannot be found. Datasets and the above are checked before the first run.
    """
    if unknown := set(tasks) - set(TASKS):
        raise ValueError(f"No task {', '.join(sorted(unknown))} in VTAB. Tasks: {', '.join(TASKS)}")
    folder = Path(folder)
    recipes = {task: _recipe(task, weights, folder / task, data_dir, mean, std) for task in tasks or TASKS}
    _check(recipes, folder)
    folder.mkdir(parents=True, exist_ok=True)
    finished, failed = {}, {}
    for task, recipe in recipes.items():
        try:
            finished[task] = run_recipe.run_unless_finished(recipe)["top1"]
        except Exception as error:
            traceback.print_exc()
            failed[task] = f"{type(error).__name__}: {error}"  # the error itself would keep the model in memory
    for task in [task for task in TASKS if task not in recipes and (folder / task / METRICS).is_file()]:
        with suppress(ValueError):  # of other weights
            recipe = _recipe(task, weights, folder / task, data_dir, mean, std)
            finished[task] = run_recipe.run_unless_finished(recipe)["top1"]
    top1 = {task: finished[task] for task in TASKS if task in finished}
    result = VtabResult(top1, vtab_means(top1, GROUPS)) if top1.keys() == GROUPS.keys() else VtabResult(top1)
    content = {"tasks": result.tasks} | ({"means": result.means} if result.means else {})
    write_file(folder / "vtab.json", json.dumps(content, indent=2) + "\n")
    if failed:
        errors = "; ".join(f"{task}: {error}" for task, error in failed.items())
        raise ValueError(f"{len(failed)} of {len(recipes)} tasks failed. The same call runs only these. {errors}")
    return result


def vtab_means(top1: dict[str, float], groups: dict[str, str]) -> dict[str, float]:
    """VTAB's scores: the mean accuracy of each group of tasks, and of all tasks as "all" (arXiv 1910.04867).

    "all" is the mean over the tasks, not over the groups, which have 7, 4 and 8 of the 19 tasks.

    Args:
        top1: Accuracy by task, of all tasks of the groups.
        groups: Group by task: "natural", "specialized" or "structured".
    """
    names = dict.fromkeys(groups.values())
    means = {name: float(np.mean([top1[task] for task in groups if groups[task] == name])) for name in names}
    return {**means, "all": float(np.mean(list(top1.values())))}


def _recipe(task, weights, folder, data_dir, mean, std) -> Supervised:
    recipe = RECIPES[f"vtab-{task}"]
    run = replace(recipe.run, folder=str(folder), resume=True)
    data = replace(recipe.data, data_dir=data_dir, mean=mean, std=std)
    return replace(recipe, weights=weights, data=data, run=run)


def _check(recipes, folder):
    """Raises the errors that would otherwise end the last task, hours later."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder.absolute()} is a file. Choose another folder.")
    unfinished = [task for task in recipes if not (folder / task / METRICS).is_file()]
    for task, recipe in recipes.items():
        if task not in unfinished or find_checkpoints(recipe.run.folder):
            check_resumable(recipe)
    for task in unfinished:
        open_dataset(recipes[task].data)
