"""Checks of a recipe against the devices and the disk, before data is read. They report all that they find.

Recipes check their own fields when they are created, recipe/checks.py has what requires neither, run_data.py the rest.
"""

import os

import keras
import tensorflow as tf

from keras_vit.recipes.processes.jax_devices import JaxDevices, Strategy
from keras_vit.recipes.recipe import Recipe, Run
from keras_vit.recipes.recipe.errors import RecipeError, check_all
from keras_vit.recipes.training.accumulation import check_batch_size


def check_devices(recipe: Recipe, strategy: Strategy):
    """Checks a recipe against the devices, without reading data, building a model or touching the run's folder."""
    check_all(
        lambda: check_backend(recipe),
        lambda: check_precision(recipe.run, _has_tpus(strategy)),
        lambda: check_batch_size(
            recipe.data.batch_size, strategy.num_replicas_in_sync, recipe.optimizer.accumulation_steps
        ),
        lambda: _check_repeats(recipe.data, strategy.num_replicas_in_sync),
        lambda: _check_folder(recipe.run, strategy),
    )


def _has_tpus(strategy) -> bool:
    if isinstance(strategy, JaxDevices):
        return strategy.names[0].startswith("tpu")
    return isinstance(strategy, tf.distribute.TPUStrategy)


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
    if run.folder is not None:
        _check_reachable(run.folder, strategy)
    elif run.tensorboard:
        raise RecipeError(
            "TensorBoard's files require a folder.",
            {"run.tensorboard": True, "run.folder": None},
            [{"run.folder": "runs/x"}, {"run.tensorboard": False}],
        )


def _check_reachable(folder, strategy):
    """A remote TPU's own machine writes the checkpoints, so a local folder would be on the disk of that machine."""
    name = os.environ.get("TPU_NAME", "")
    if isinstance(strategy, tf.distribute.TPUStrategy) and name not in ("", "local") and "://" not in folder:
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
