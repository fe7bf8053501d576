"""Training without labels: what its kinds, masked_patch.py and masked_autoencoder.py, share. B batch, H W pixels."""

import os
from collections.abc import Callable

import tensorflow as tf

from keras_vit.atomic_write import literal_folder
from keras_vit.recipes.data import training_pixels
from keras_vit.recipes.pretraining import masked_autoencoder, masked_patch
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel, masked_autoencoder_batches
from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel, masked_patch_batches
from keras_vit.recipes.pretraining.reconstruction import Reconstruction, reconstruct_corrupted, reconstruct_masked
from keras_vit.recipes.recipe import MaskedAutoencoder, MaskedPatch, SelfSupervised
from keras_vit.recipes.runs.checkpoints import TrainingState
from keras_vit.recipes.runs.folder import find_checkpoints
from keras_vit.recipes.runs.open_run import OpenRun
from keras_vit.recipes.training.callbacks import finite_epoch_metrics, use_ema_weights
from keras_vit.recipes.training.initialization import initialize
from keras_vit.recipes.training.model import build_model, optimizer_arguments
from keras_vit.recipes.training.replacements import NOTHING_REPLACED

SelfSupervisedModel = MaskedPatchModel | MaskedAutoencoderModel
# What differs between the kinds.
BUILD: dict[type, Callable] = {MaskedPatch: masked_patch.build, MaskedAutoencoder: masked_autoencoder.build}
BATCHES: dict[type, Callable] = {MaskedPatch: masked_patch_batches, MaskedAutoencoder: masked_autoencoder_batches}
RECONSTRUCT: dict[type, Callable] = {MaskedPatch: reconstruct_corrupted, MaskedAutoencoder: reconstruct_masked}


class Pretraining:
    """What a run without labels trains; made before anything is trained.

    Attributes:
        model: The compiled model to fit.
        result: The `VisionTransformer` in it, without a head.
    """

    def __init__(self, run: OpenRun):
        self.run = run
        self.recipe: SelfSupervised = run.recipe  # type: ignore[assignment] # it has no labels
        with run.strategy.scope():
            self.model = compile_self_supervised(self.recipe, run.replacements)
        self.result = self.model.vit

    def batches(self, start_step: int, host: tuple[int, int]):
        """One host's part of the training batches from a step on."""
        recipe, augment = self.recipe, self.run.replacements.augment
        pixels = training_pixels(recipe.data, self.run.data.dataset, recipe.run.seed, start_step, host, augment)
        return self_supervised_batches(pixels, self.result.patch_size, recipe, start_step, host)

    def finish(self):
        """Nothing to do: there is no test set."""

    def metrics(self, history) -> dict[str, float]:
        """Metrics of the last epoch."""
        return finite_epoch_metrics(history, self.model)


def compile_self_supervised(recipe: SelfSupervised, replacements=NOTHING_REPLACED) -> SelfSupervisedModel:
    """The compiled model of a recipe, whose `vit` is the result of the training; inside the strategy's scope."""
    vit = build_model(recipe.architecture, recipe.data, recipe.run)
    model, loss_and_metrics = BUILD[type(recipe)](vit, recipe)
    initialize(model, recipe.architecture.initialization, recipe.run.seed)
    model.compile(
        **optimizer_arguments(recipe, recipe.total_steps, model, replacements),
        **loss_and_metrics,
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model


def self_supervised_batches(
    pixels: tf.data.Dataset, patch_size, recipe: SelfSupervised, start_step: int = 0, host: tuple[int, int] = (0, 1)
) -> tf.data.Dataset:
    """Maps batches ((B, H, W, 3) in [0, 255], labels) to batches (inputs, targets) for `fit`."""
    return BATCHES[type(recipe)](pixels, patch_size, recipe, start_step, host)


def reconstruct(model: SelfSupervisedModel, pixels, recipe: SelfSupervised, seed: int = 0) -> Reconstruction:
    """Masks images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions."""
    return RECONSTRUCT[type(recipe)](model, pixels, recipe, seed)


def load_self_supervised(recipe: SelfSupervised, folder) -> SelfSupervisedModel:
    """Loads the newest checkpoint in a run's folder, with the EMA of the weights if the run has one.

    model.keras does not contain head and decoder. Nothing is written, so the run may still be training.
    """
    model = compile_self_supervised(recipe)
    model.optimizer.build(model.trainable_variables)
    newest = find_checkpoints(folder)[0]
    try:
        # Partial: the checkpoint also holds the identity of the run.
        state = TrainingState(model)
        with literal_folder(folder) as literal:
            newest_there = os.path.join(literal, os.path.basename(newest))
            status = tf.train.Checkpoint(**state.groups).read(newest_there)
        status.expect_partial().assert_existing_objects_matched()
        state.copy_to_model()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file is too short
        raise ValueError(
            f"{newest} does not match the model of recipe.json: it is damaged, or was written by another version of "
            f"keras_vit. {str(error).splitlines()[0]}"
        ) from error
    use_ema_weights(model)
    return model
