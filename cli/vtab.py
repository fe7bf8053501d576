"""`keras-vit vtab`: a checkpoint on the 19 tasks of VTAB-1k."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Vtab:
    """Fine-tune a checkpoint on each task of VTAB-1k by the paper's recipe, and print its Table 9.

    A task that was finished in the folder is not run again, one that was broken off goes on.

    Args:
        weights: What `keras_vit.load` takes.
        folder: Of the runs, and of vtab.json.
        data_dir: Where prepared data sets are kept; by default TensorFlow Datasets' own place.
        tasks: Some of them; the means of groups need all.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    folder: Path = Path("runs/vtab")
    data_dir: str | None = None
    tasks: tuple[str, ...] = ()

    def run(self):
        """Trains, and prints the table."""
        import json

        from keras_vit.recipes import run_recipe
        from keras_vit.recipes.configs import RECIPES
        from keras_vit.recipes.data.vtab import GROUPS, TASKS
        from keras_vit.recipes.evaluation.classification import vtab_means
        from keras_vit.recipes.remote_files import write_file

        if unknown := set(self.tasks) - set(TASKS):
            raise ValueError(f"No task {', '.join(sorted(unknown))} in VTAB. Tasks: {', '.join(TASKS)}")
        recipes = {name: self._recipe(RECIPES[f"vtab-{name}"], name) for name in self.tasks or TASKS}
        self._check(recipes)
        self.folder.mkdir(parents=True, exist_ok=True)
        accuracies = {name: run_recipe.run_unless_finished(recipe)["top1"] for name, recipe in recipes.items()}
        outcome = {"tasks": accuracies}
        if not self.tasks:
            outcome["means"] = vtab_means(accuracies, GROUPS)
        write_file(self.folder / "vtab.json", json.dumps(outcome, indent=2) + "\n")
        print("\n| task | group | accuracy, % |\n|---|---|---|")
        for name, accuracy in accuracies.items():
            print(f"| {TASKS[name].title} | {GROUPS[name]} | {100 * accuracy:.1f} |")
        for group, mean in outcome.get("means", {}).items():
            print(f"| **mean** | {group} | **{100 * mean:.2f}** |")

    def _recipe(self, recipe, task):
        run = replace(recipe.run, folder=str(self.folder / task), resume=True)
        return replace(recipe, weights=self.weights, data=replace(recipe.data, data_dir=self.data_dir), run=run)

    def _check(self, recipes):
        """Raises ValueError or OSError for weights, data and folders that would end the last task, after hours."""
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.training.run_folder import METRICS, check_resumable, find_checkpoints

        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder.absolute()} is a file. Name a folder with --folder.")
        waiting = [name for name in recipes if not (self.folder / name / METRICS).is_file()]
        for name, recipe in recipes.items():
            if name not in waiting or find_checkpoints(recipe.run.folder):
                check_resumable(recipe)
        if waiting:
            _check_weights(self.weights)
        for name in waiting:
            open_dataset(recipes[name].data)


def _check_weights(weights):
    """Raises ValueError or OSError if there are none; reads names and shapes only."""
    if "://" in weights:  # read when the first task begins
        return
    if weights.endswith(".keras"):
        if not Path(weights).is_file():
            raise FileNotFoundError(f"There is no model file {Path(weights).absolute()}.")
    elif not (Path(weights) / "model.keras").is_file():
        from keras_vit.weights import open_checkpoint

        open_checkpoint(weights)
