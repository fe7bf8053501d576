"""Loads a masked-patch model with its head from a checkpoint; model.keras does not contain the head."""

import tensorflow as tf

from keras_vit.recipes.checkpoints.checkpoints import training_state
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints
from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.compile import compile_masked_patch
from keras_vit.recipes.training.ema import use_ema_weights


def load_masked_patch(recipe: MaskedPatch, folder) -> MaskedPatchModel:
    """Loads the newest checkpoint in a run's folder, with the EMA of the weights if the run has one.

    Nothing is written, so the run may still be training.

    Args:
        recipe: The recipe of the run, from its recipe.json.
        folder: The folder of the run, with at least one checkpoint.

    Raises:
        ValueError: The checkpoint is damaged, or does not match the recipe or this version of keras_vit.
    """
    model = compile_masked_patch(recipe)
    model.optimizer.build(model.trainable_variables)
    newest = find_checkpoints(folder)[0]
    try:
        # Partial: the checkpoint also holds the identity of the run.
        tf.train.Checkpoint(**training_state(model)).read(newest).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file is too short
        raise ValueError(
            f"{newest} does not match the model of recipe.json: it is damaged, or was written by another version of "
            f"keras_vit. {str(error).splitlines()[0]}"
        ) from error
    use_ema_weights(model)
    return model
