"""Models made of the layers."""

from keras_vit.models.vit import VisionTransformer as VisionTransformer
