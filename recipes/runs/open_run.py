"""Opens a run: all that is checked, counted and agreed on before a model is built, in the order in which it happens.

`OpenRun` holds the facts that building, training, saving and evaluating share.
"""

import gc
from contextlib import contextmanager
from dataclasses import dataclass

import keras

from keras_vit.recipes.processes.jax_devices import Strategy
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.processes.watch import Watch
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.checks import check_plan
from keras_vit.recipes.recipe.errors import check_all
from keras_vit.recipes.runs.agreement import check_same_data, check_same_recipe
from keras_vit.recipes.runs.device_checks import check_devices
from keras_vit.recipes.runs.folder import check_same_run, prepare_run_folder
from keras_vit.recipes.runs.identity import RunIdentity
from keras_vit.recipes.runs.lock import run_lock
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.training.replacements import NOTHING_REPLACED, Replacements


@dataclass(frozen=True)
class OpenRun:
    """A run whose recipe, devices, folder and data are checked, and whose folder is locked.

    Attributes:
        workers: The processes of the strategy.
        start: A model to start from; None for the weights of the recipe, or random ones.
        began: The identity with which the run in the folder began, see `check_same_run`.
    """

    recipe: Recipe
    strategy: Strategy
    workers: Workers
    data: RunData
    start: keras.Model | None = None
    replacements: Replacements = NOTHING_REPLACED
    began: RunIdentity | None = None

    @property
    def folder(self) -> str | None:
        """Of the results."""
        return self.recipe.run.folder

    @property
    def total_steps(self) -> int:
        """Its length."""
        return self.data.total_steps


@contextmanager
def open_run(recipe: Recipe, start=None, replacements: Replacements = NOTHING_REPLACED):
    """Yields the `OpenRun` of a recipe; its folder is locked for as long as the block runs.

    Raises:
        ValueError, OSError: The recipe cannot be trained here, on this data or in this folder; or the processes of the
            run differ in recipe, versions or data.
    """
    # The devices and the other processes: first, since workers can join only before any operation.
    strategy = choose_strategy(recipe.run.strategy, recipe.run.join_seconds)
    workers = Workers(strategy)
    with Watch(workers, recipe.data.service):
        check_same_recipe(recipe, workers)
        # The plan.
        patch_size = getattr(start, "patch_size", None)
        check_all(lambda: check_plan(recipe, patch_size), lambda: check_devices(recipe, strategy))
        # The folder.
        with run_lock(recipe.run.folder, workers):
            for _ in range(2):  # models of before: without such a cycle `release_gradients` frees weights and moments
                gc.collect()
            if recipe.run.folder is not None:
                prepare_run_folder(recipe, workers.chief)
            # The data.
            data = RunData(recipe)
            check_same_data(data, workers)
            keras.utils.set_random_seed(recipe.run.seed)
            data.check()
            folder, began = recipe.run.folder, None
            if folder is not None:  # `fit` compares what the optimizer and the model are once they exist
                began = check_same_run(folder, data, replacements.fields(), workers)
            yield OpenRun(recipe, strategy, workers, data, start, replacements, began)
