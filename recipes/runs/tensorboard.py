"""Scalars and images for TensorBoard, by step. n images, H W pixels."""

import os
from dataclasses import replace
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from keras_vit import VisionTransformer, attention_rollout
from keras_vit.inspect.figures import overlay
from keras_vit.recipes.data import evaluation_batches
from keras_vit.recipes.recipe import Data, SelfSupervised
from keras_vit.recipes.runs.self_supervised import reconstruct

IMAGES = 8
GRAY = 128


class TensorBoardLog(keras.callbacks.Callback):
    """Writes the logs of every epoch as scalars at its last step, under folder/train and folder/validation.

    Args:
        folder: Folder of the event files, local or on gs://.
        draw_images: Function without arguments that returns a name and (n, H, W, 3) uint8, called once an epoch; None
            for no images.
    """

    def __init__(self, folder, draw_images=None):
        super().__init__()
        self.folder = str(folder)
        self.draw_images = draw_images
        self.writers = {}

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        for name, value in logs.items():
            part = "validation" if name.startswith("val_") else "train"
            with self._writer(part).as_default(step):
                tf.summary.scalar(name.removeprefix("val_"), value)
        if self.draw_images:
            name, images = self.draw_images()
            with self._writer("train").as_default(step):
                tf.summary.image(name, images, max_outputs=len(images))
        for writer in self.writers.values():
            writer.flush()

    def on_train_end(self, logs=None):
        for writer in self.writers.values():
            writer.close()
        self.writers = {}

    def _writer(self, part):
        if part not in self.writers:
            self.writers[part] = tf.summary.create_file_writer(os.path.join(self.folder, part))
        return self.writers[part]


def image_function(recipe, model, dataset):
    """The function that draws a model's images for `TensorBoardLog`: reconstructed patches, or attention rollout.

    None for classifiers without attention maps: a BiT, an axial ViT.
    """
    if not recipe.has_labels:
        pixels = _pixels(recipe.data, dataset, recipe.data.train_split)
        return partial(reconstructions, model, pixels, recipe)
    vit = getattr(model, "student", model)
    if not isinstance(vit, VisionTransformer) or vit.config.axial:
        return None
    split = recipe.data.validation_split or recipe.data.train_split
    return partial(rollouts, vit, _pixels(recipe.data, dataset, split), recipe.data)


def reconstructions(model, pixels, recipe: SelfSupervised):
    """Input images (n, H, W, 3) in [0, 255] with masked patches in gray, predictions and targets, side by side."""
    drawn = reconstruct(model, pixels, recipe, seed=recipe.run.seed)
    inputs = np.where(drawn.masked[..., None], np.uint8(GRAY), drawn.inputs)
    predicted, targets = (_enlarged(part, pixels.shape[1:3]) for part in (drawn.predicted, drawn.targets))
    return "reconstructions", np.concatenate([inputs, predicted, targets], axis=2)  # (n, H, 3 W, 3)


def rollouts(vit, pixels, data: Data):
    """Images (n, H, W, 3) in [0, 255] without and with their attention rollout as an overlay, side by side."""
    mean, std = (255 * np.array(values, "float32") for values in (data.mean, data.std))
    maps = attention_rollout(vit, (pixels - mean) / std)  # (n, H, W)
    images = pixels.astype("uint8")
    overlays = [overlay(*pair) for pair in zip(images, maps)]
    return "attention", np.concatenate([images, overlays], axis=2)  # (n, H, 2 W, 3)


def _pixels(data, dataset, split):
    """The first images of a split as (n, H, W, 3) float32 in [0, 255]."""
    few = replace(data, batch_size=IMAGES, service=None)
    images, _, weights = next(evaluation_batches(few, dataset, split).as_numpy_iterator())
    pixels = (images * np.array(data.std) + np.array(data.mean)) * 255
    return np.clip(np.round(pixels[weights > 0]), 0, 255).astype("float32")


def _enlarged(images, size):
    """Nearest-neighbor resize; the 4 x 4 cells of a target need not divide the patch."""
    rows, columns = (np.arange(wide) * small // wide for wide, small in zip(size, images.shape[1:3]))
    return images[:, rows][:, :, columns]
