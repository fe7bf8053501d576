"""The callbacks of a run, in the order in which Keras calls them."""

import os

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.data import ImageDataset
from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import strategy_of
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.training.ema import EvaluateWithEMA
from keras_vit.recipes.training.logs import LOG, CsvLog, Progress, ProgressBar
from keras_vit.recipes.training.nonfinite import NonfiniteSteps


def training_callbacks(
    recipe: Recipe,
    model,
    dataset: ImageDataset,
    total_steps: int,
    checkpoints: Checkpoints | None = None,
    more=(),
) -> list:
    """Builds the callbacks of a run.

    Args:
        recipe: With `run.folder`, log.csv is written into it, and with `run.tensorboard` also tensorboard/.
        model: The model to train: of a recipe without labels, a classifier or a `DistillationModel`.
        dataset: As returned by `open_dataset`; some of its images are shown in TensorBoard.
        total_steps: Steps of the whole run.
        checkpoints: Those of the run, if it has a folder.
        more: The user's callbacks.
    """
    # Weights are swapped back before any other callback sees the end of an evaluation; a run is stopped before its
    # checkpoint is saved; logs are complete before they are written, and written before the checkpoint.
    return [
        EvaluateWithEMA(),
        NonfiniteSteps(recipe.run.max_nonfinite_steps, checkpoints),
        *_logs(recipe, model, dataset, total_steps),
        *more,
        *([checkpoints] if checkpoints else []),
        ProgressBar(),
    ]


def _logs(recipe, model, dataset, total_steps):
    workers = Workers(strategy_of(model))
    chief = workers.chief
    logs: list = [Progress(recipe.data.batch_size, total_steps, chief)]
    if not chief or recipe.run.folder is None:
        return logs
    logs.append(CsvLog(os.path.join(recipe.run.folder, LOG)))
    if recipe.run.tensorboard:
        from keras_vit.recipes.training.tensorboard import TensorBoardLog, image_function  # imports drawing libraries

        folder = os.path.join(recipe.run.folder, "tensorboard")
        # With JAX every process computes a part of the model's output, and only the chief draws.
        draws = not (workers.several and isinstance(workers.strategy, JaxDevices))
        logs.append(TensorBoardLog(folder, image_function(recipe, model, dataset) if draws else None))
    return logs
