"""Opens a run: all that is checked, counted and agreed on before a model is built, in the order in which it happens.

`OpenRun` holds the facts that building, training, saving and evaluating share. Recipes check their own fields when they
are created, recipe/checks.py has what requires neither devices nor data, run_data.py what requires data.
"""

import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import tensorflow as tf

from keras_vit.recipes.processes.jax_devices import JaxDevices, Strategy
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.processes.watch import Watch
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Recipe, Run
from keras_vit.recipes.recipe.checks import check_plan
from keras_vit.recipes.recipe.errors import RecipeError, check_all
from keras_vit.recipes.runs.agreement import check_same_data, check_same_recipe
from keras_vit.recipes.runs.folder import check_same_run, prepare_run_folder
from keras_vit.recipes.runs.identity import RunIdentity
from keras_vit.recipes.runs.lock import run_lock
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.training.accumulation import check_batch_size
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
            folder, began = recipe.run.folder, None
            resumes = folder is not None and prepare_run_folder(recipe, workers.chief)
            # The data.
            data = RunData(recipe)
            check_same_data(data, workers)
            keras.utils.set_random_seed(recipe.run.seed)
            data.check()
            if folder is not None:  # `fit` compares what the optimizer and the model are once they exist
                began = check_same_run(folder, resumes, data, replacements.fields(), workers)
            yield OpenRun(recipe, strategy, workers, data, start, replacements, began)


def check_devices(recipe: Recipe, strategy: Strategy):
    """Checks a recipe against the devices, without reading data, building a model or touching the run's folder."""
    with_jax = isinstance(strategy, JaxDevices)
    is_tpu = strategy.names[0].startswith("tpu") if with_jax else isinstance(strategy, tf.distribute.TPUStrategy)
    check_all(
        lambda: check_backend(recipe),
        lambda: check_precision(recipe.run, is_tpu),
        lambda: check_batch_size(
            recipe.data.batch_size, strategy.num_replicas_in_sync, recipe.optimizer.accumulation_steps
        ),
        lambda: _check_repeats(recipe.data, strategy.num_replicas_in_sync),
        lambda: _check_folder(recipe.run, strategy),
    )


def check_backend(recipe: Recipe):
    """Raises ValueError for distillation with Keras on JAX, and for what only JAX splits with TensorFlow."""
    with_jax = keras.backend.backend() == "jax"
    if recipe.run.shard_optimizer and not with_jax:
        raise RecipeError(
            "Only Keras on JAX splits the optimizer's state: start the command with KERAS_BACKEND=jax, or leave a copy "
            f"on each device. The backend is KERAS_BACKEND={keras.backend.backend()}.",
            {"run.shard_optimizer": True},
            {"run.shard_optimizer": False},
        )
    if with_jax and recipe.has_teacher:
        raise ValueError(
            "Distillation requires Keras on TensorFlow, which runs the teacher. Received: KERAS_BACKEND=jax. Start it "
            "with KERAS_BACKEND=tensorflow."
        )


def check_precision(run: Run, is_tpu: bool):
    """Raises ValueError for mixed_float16 on a TPU."""
    if is_tpu and run.precision == "mixed_float16":
        raise RecipeError(
            "TPUs compute in bfloat16, which requires no loss scaling.",
            {"run.precision": run.precision},
            {"run.precision": "mixed_bfloat16"},
        )


def _check_folder(run, strategy):
    """A remote TPU's own machine writes the checkpoints, so a local folder would be on the disk of that machine."""
    name, folder = os.environ.get("TPU_NAME", ""), run.folder
    if folder is None and run.tensorboard:
        raise RecipeError(
            "TensorBoard's files require a folder.",
            {"run.tensorboard": True, "run.folder": None},
            [{"run.folder": "runs/x"}, {"run.tensorboard": False}],
        )
    is_remote = isinstance(strategy, tf.distribute.TPUStrategy) and name not in ("", "local")
    if is_remote and folder is not None and "://" not in folder:
        raise RecipeError(
            f"The machines of the TPU {name!r} cannot write checkpoints to a local folder, only to a bucket. On the "
            "TPU's own machine, set the environment variable TPU_NAME=local.",
            {"run.folder": folder},
            {"run.folder": "gs://BUCKET/FOLDER"},
        )


def _check_repeats(data, replicas):
    """Each machine mixes its part of a batch, where copies of one image must not be all there is to mix."""
    repeats = data.augment.repeats
    least = 2 * repeats * replicas
    if repeats > 1 and data.augment.mixes and data.batch_size < least:
        raise RecipeError(
            f"Mixup and CutMix mix different images, but the {repeats} copies of an image are side by side: a batch "
            f"on {replicas} replicas requires at least {least} images.",
            {"data.batch_size": data.batch_size, "data.augment.repeats": repeats},
            {"data.batch_size": least},
        )
