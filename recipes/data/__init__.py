"""Data sets as batches for `fit`: what is read, how an image is decoded and changed, and in which order they come."""

from keras_vit.recipes.data.datasets import class_names, count_examples, open_dataset
from keras_vit.recipes.data.decoded_images import decoded_images
from keras_vit.recipes.data.pipeline import (
    evaluation_arrays,
    evaluation_batches,
    training_batches,
    training_pixels,
)

__all__ = [
    "class_names",
    "count_examples",
    "decoded_images",
    "evaluation_arrays",
    "evaluation_batches",
    "open_dataset",
    "training_batches",
    "training_pixels",
]
