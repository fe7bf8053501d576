"""The masked-patch model that a run left, with the head that its model.keras goes without."""

import tensorflow as tf

from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.checkpoints import numbered_states
from keras_vit.recipes.training.compiled_model import masked_patch_trainee
from keras_vit.recipes.training.ema import use_averages
from keras_vit.recipes.training.run_folder import find_checkpoints


def read_masked_patch(recipe: MaskedPatch, folder) -> MaskedPatchModel:
    """The model of the newest checkpoint in a run's folder, with the averages of its weights if the run kept them.

    Only reads, so that a run that is still going on may be looked into.

    Args:
        recipe: The run's, of its recipe.json.
        folder: The run's; it has a checkpoint.

    Raises:
        ValueError: The checkpoint is damaged, or of another version of keras_vit or of the recipe.
    """
    model = masked_patch_trainee(recipe)
    model.optimizer.build(model.trainable_variables)
    newest = find_checkpoints(folder)[0]
    states = {"model": numbered_states(model.variables), "optimizer": numbered_states(model.optimizer.variables)}
    try:
        # Partial: the number of saves, which the manager of a run counts, is left out.
        tf.train.Checkpoint(**states).restore(newest).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: a file is too short
        raise ValueError(
            f"{newest} cannot be read into the model of the recipe beside it: it is damaged, or of another version of "
            f"keras_vit. {str(error).splitlines()[0]}"
        ) from error
    use_averages(model)
    return model
