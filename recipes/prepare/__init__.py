"""`keras-vit prepare`: folders of pictures become TFRecord shards, without copies of test pictures."""

from keras_vit.recipes.prepare.shards import prepare

__all__ = ["prepare"]
