"""Recipes by name, one file per group. Each file starts with its purpose, which `keras-vit train` prints, in one line,
then command, hardware, hours and expected accuracy.

`RECIPES` contains all of them; `SWEEPS` contains, for some, the learning rates that the paper tried and the images that
it held out to choose among them. Nothing here imports TensorFlow.
"""

from keras_vit.recipes.configs import (
    augreg,
    bit,
    cifar10,
    deit,
    deit3,
    digits,
    finetune,
    imagenet,
    jft,
    masked_autoencoder,
    masked_patch,
    plain_s16,
    vtab,
)
from keras_vit.recipes.recipe import Recipe, errors

# In the order in which `keras-vit train` lists them: those of a laptop first.
GROUPS = (
    digits,
    cifar10,
    finetune,
    vtab,
    bit,
    plain_s16,
    deit,
    deit3,
    augreg,
    imagenet,
    masked_patch,
    masked_autoencoder,
    jft,
)

# In the paths of the datasets that have no public location: ImageNet-21k and JFT.
PLACEHOLDER = "gs://your-bucket/"


RECIPES: dict[str, Recipe] = {name: recipe for group in GROUPS for name, recipe in group.RECIPES.items()}
SWEEPS: dict[str, dict] = finetune.SWEEPS | vtab.SWEEPS


def check_dataset(recipe: Recipe):
    """Raises RecipeError if the recipe's dataset is still the placeholder of one without a public location."""
    if PLACEHOLDER in recipe.data.dataset:
        raise errors.RecipeError(
            "This recipe requires your own dataset and its splits: there is no public one. `keras-vit prepare` writes "
            "TFRecords.",
            {"data.dataset": recipe.data.dataset},
            [{"data.dataset": "folder:/path"}, {"data.dataset": "tfrecord:gs://bucket/path"}],
        )
