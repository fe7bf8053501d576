"""The public names of `keras_vit.recipes.pretraining.masked_patch`."""

from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel, masked_patch_batches, masked_patch_loss

__all__ = ["MaskedPatchModel", "masked_patch_batches", "masked_patch_loss"]
