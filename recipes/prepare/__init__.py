"""`keras-vit prepare`: folders of images become TFRecord shards, without copies of test images."""

from keras_vit.recipes.prepare.shards import prepare

__all__ = ["prepare"]
