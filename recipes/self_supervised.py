"""What differs between the kinds of recipes without labels: models, batches, reconstructions. B batch, H W pixels."""

import os

import keras
import tensorflow as tf

from keras_vit.atomic_write import literal_folder
from keras_vit.recipes import masked_autoencoder, masked_patch
from keras_vit.recipes.checkpoints.checkpoints import TrainingState
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints
from keras_vit.recipes.masked_autoencoder import MaskedAutoencoderModel
from keras_vit.recipes.masked_patch import MaskedPatchModel, Reconstruction, masked_patch_batches, masked_patch_loss
from keras_vit.recipes.recipe import MaskedAutoencoder, SelfSupervised
from keras_vit.recipes.training.callbacks import use_ema_weights
from keras_vit.recipes.training.initialization import initialize
from keras_vit.recipes.training.model import build_model, optimizer_arguments
from keras_vit.recipes.training.replacements import NOTHING_REPLACED

SelfSupervisedModel = MaskedPatchModel | MaskedAutoencoderModel


def compile_self_supervised(recipe: SelfSupervised, replacements=NOTHING_REPLACED) -> SelfSupervisedModel:
    """The compiled model of a recipe, whose `vit` is the result of the training; inside the strategy's scope.

    The loss of a masked autoencoder is the mean squared error of its predictions.
    """
    vit = build_model(recipe.architecture, recipe.data, recipe.run)
    model: SelfSupervisedModel
    loss = keras.losses.MeanSquaredError()
    metrics: list[keras.metrics.Metric] = []
    if isinstance(recipe, MaskedAutoencoder):
        sizes = recipe.decoder_depth, recipe.decoder_width, recipe.decoder_heads
        model = MaskedAutoencoderModel(vit, *sizes, recipe.normalize_targets)
    else:
        model, loss = MaskedPatchModel(vit, recipe.target), masked_patch_loss(recipe.target)
        if recipe.target != "pixels":
            metrics.append(keras.metrics.SparseCategoricalAccuracy(name="top1", dtype="float32"))
    initialize(model, recipe.architecture.initialization, recipe.run.seed)
    model.compile(
        **optimizer_arguments(recipe, recipe.total_steps, model, replacements),
        loss=loss,
        metrics=metrics,
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model


def self_supervised_batches(
    pixels: tf.data.Dataset, patch_size, recipe: SelfSupervised, start_step: int = 0, host: tuple[int, int] = (0, 1)
) -> tf.data.Dataset:
    """Maps batches ((B, H, W, 3) in [0, 255], labels) to batches (inputs, targets) for `fit`."""
    if isinstance(recipe, MaskedAutoencoder):
        return masked_autoencoder.masked_autoencoder_batches(pixels, patch_size, recipe, start_step, host)
    return masked_patch_batches(pixels, patch_size, recipe, start_step, host)


def reconstruct(model: SelfSupervisedModel, pixels, recipe: SelfSupervised, seed: int = 0) -> Reconstruction:
    """Masks images (B, H, W, 3) with pixels in [0, 255] as in training, and renders the model's predictions."""
    if isinstance(recipe, MaskedAutoencoder):
        return masked_autoencoder.reconstruct(model, pixels, recipe, seed)
    return masked_patch.reconstruct(model, pixels, recipe, seed)


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
