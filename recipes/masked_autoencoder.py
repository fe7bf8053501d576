"""The public names of `keras_vit.recipes.pretraining.masked_autoencoder`."""

from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel

__all__ = ["MaskedAutoencoderModel"]
