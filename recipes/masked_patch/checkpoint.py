"""The masked-patch model that a run left, with the head that its model.keras goes without."""

import tensorflow as tf

from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.checkpoints import numbered_variables
from keras_vit.recipes.training.compile import compile_masked_patch
from keras_vit.recipes.training.ema import use_ema_weights
from keras_vit.recipes.training.run_folder import find_checkpoints


def load_masked_patch(recipe: MaskedPatch, folder) -> MaskedPatchModel:
    """The model of the newest checkpoint in a run's folder, with the averages of its weights if the run kept them.

    Only reads, so that a run that is still going on may be looked into.

    Args:
        recipe: The run's, of its recipe.json.
        folder: The run's; it has a checkpoint.

    Raises:
        ValueError: The checkpoint is damaged, or of another version of keras_vit or of the recipe.
    """
    model = compile_masked_patch(recipe)
    model.optimizer.build(model.trainable_variables)
    newest = find_checkpoints(folder)[0]
    states = {"model": numbered_variables(model.variables), "optimizer": numbered_variables(model.optimizer.variables)}
    try:
        # Partial: the number of saves, which the manager of a run counts, is left out.
        tf.train.Checkpoint(**states).restore(newest).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file is too short
        raise ValueError(
            f"{newest} cannot be read into the model of the recipe beside it: it is damaged, or of another version of "
            f"keras_vit. {str(error).splitlines()[0]}"
        ) from error
    use_ema_weights(model)
    return model
