"""Datasets and input pipelines: `open_dataset` opens one by name, `training_batches` and others read it.

From a name to batches: datasets.py, pipeline.py, transforms.py.
"""

from keras_vit.recipes.data.arrays import decoded_images, read_encoded, read_labels
from keras_vit.recipes.data.datasets import open_dataset
from keras_vit.recipes.data.image_dataset import ImageDataset, count_examples
from keras_vit.recipes.data.pipeline import (
    count_training_images,
    evaluation_arrays,
    evaluation_batches,
    training_batches,
    training_pixels,
)

__all__ = [
    "ImageDataset",
    "count_examples",
    "count_training_images",
    "decoded_images",
    "evaluation_arrays",
    "evaluation_batches",
    "open_dataset",
    "read_encoded",
    "read_labels",
    "training_batches",
    "training_pixels",
]
