"""How long training takes on this machine, from a few images: seconds per image. H W pixels."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from keras_vit.recipes.data import ImageDataset, training_pixels
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.small_folder import Machine

IMAGES = 16  # a batch as in training: single images use less of a machine
REPEATS = 2


def measure(model, data: Data, dataset: ImageDataset, accelerator: bool) -> Machine:
    """Times a model, without its first call, and the decoding of images.

    Args:
        model: At the image size of the training.
        data: The recipe's; some of its training images are decoded.
        dataset: From `open_dataset`.
        accelerator: Whether there is a GPU or TPU.
    """
    inputs = np.zeros((IMAGES, *model.image_size, 3), "float32")
    model.predict_on_batch(inputs)
    forward_seconds = _seconds(lambda: model.predict_on_batch(inputs), REPEATS)
    count, size = min(IMAGES, dataset.splits[data.train_split]), model.image_size[0]
    batches = training_pixels(replace(data, batch_size=count, image_size=size, resize_size=size), dataset, seed=0)
    decode_seconds = _seconds(lambda: list(batches.take(REPEATS)), 1) / REPEATS  # also prepares batches ahead
    return Machine(accelerator, forward_seconds / IMAGES, decode_seconds / count)


def _seconds(call: Callable, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
