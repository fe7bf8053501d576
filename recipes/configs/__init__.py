"""Recipes by name: one small file a group, each opening with its command, hardware, time and expected accuracy.

`RECIPES` holds all of them; `SWEEPS`, the learning rates that the paper tried for some, and the images that it held
out to choose among them. Nothing here imports TensorFlow.
"""

from keras_vit.recipes.configs import (
    augreg,
    bit,
    cifar10,
    deit,
    digits,
    finetune,
    imagenet,
    jft,
    masked_patch,
    plain_s16,
    vtab,
)
from keras_vit.recipes.recipe import Distillation, MaskedPatch, Supervised

GROUPS = (imagenet, jft, augreg, plain_s16, masked_patch, finetune, vtab, deit, bit, cifar10, digits)

# In the data sets that everybody keeps in another place: ImageNet-21k and JFT.
PLACEHOLDER = "gs://your-bucket/"


def join(parts) -> dict:
    """One dictionary of several; raises ValueError if a name is in two of them."""
    joined = {}
    for part in parts:
        if twice := sorted(joined.keys() & part.keys()):
            raise ValueError(f"Two recipes are called {', '.join(twice)}. Rename one.")
        joined |= part
    return joined


RECIPES: dict[str, MaskedPatch | Supervised | Distillation] = join(group.RECIPES for group in GROUPS)
SWEEPS: dict[str, dict] = finetune.SWEEPS


def check_dataset(recipe: MaskedPatch | Supervised | Distillation):
    """Raises ValueError if the recipe's data set is one that everybody keeps in another place, and is not given yet."""
    if PLACEHOLDER in recipe.data.dataset:
        raise ValueError(
            f"This recipe trains on a data set of yours: {recipe.data.dataset!r} stands for it. Give its place with "
            "--data.dataset, such as 'folder:/path' or 'tfrecord:gs://bucket/path', and its splits with "
            "--data.train-split, --data.validation-split and --data.test-split. `keras-vit prepare` writes TFRecords."
        )
