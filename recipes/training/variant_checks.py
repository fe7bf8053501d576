"""Checks of a recipe's variant against its image size. No TensorFlow import here."""

from keras_vit.images import patch_grid
from keras_vit.recipes.recipe import Architecture, Data
from keras_vit.variants import parse_variant

BIT = "BiT-"  # starts the names of variants without patches


def check_image_size(architecture: Architecture, data: Data):
    """Raises ValueError if the variant is unknown or the image is not divisible into its patches; builds nothing."""
    if not architecture.variant.startswith(BIT):
        check_patches(data, parse_variant(architecture.variant)["patch_size"])


def check_patches(data: Data, patch_size):
    """Raises ValueError, which names the field, if the image is not divisible into patches."""
    try:
        patch_grid(data.image_size, patch_size)
    except ValueError as error:
        raise ValueError(str(error).replace("image_size=", "data.image_size=")) from None
