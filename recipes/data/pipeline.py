"""Batches of images and labels of a data set. B batch, H W pixels, C classes.

All randomness comes from (seed, number of the image in the run), so a run can be repeated, and batch i is the same
whether earlier ones were drawn or `start_step` skips them.
"""

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.batches import corrupt_replaced, corrupt_weightless, prepared_batches
from keras_vit.recipes.data.datasets import ImageDataset
from keras_vit.recipes.data.decode import evaluation_image
from keras_vit.recipes.data.examples import (
    count_chosen,
    count_some,
    decoded_once,
    pixels,
    read_examples,
    shuffled_forever,
)
from keras_vit.recipes.data.mixing import mix
from keras_vit.recipes.data.training_image import check_images, training_image
from keras_vit.recipes.recipe import Data

ONE_HOST = (0, 1)
PIXELS = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}


def training_pixels(
    data: Data, dataset: ImageDataset, seed: int, start_step: int = 0, host: tuple[int, int] = ONE_HOST
) -> tf.data.Dataset:
    """Endless training batches ((B, H, W, 3) float32 in [0, 255], labels), shuffled, cropped, flipped, augmented.

    Labels are (B,) int64, or (B, C) float32 of a data set with several right answers.

    Args:
        data: The recipe's.
        dataset: From `open_dataset`.
        seed: Of the order and of all that is random.
        start_step: Number of the first batch.
        host: (i, n): the i-th of n equal parts of each batch, for a machine of several: only that part is decoded.

    Raises:
        ValueError: Fields of `data` that do not fit each other, or an unknown or empty split.
    """
    batches = _training(data, dataset, seed, start_step, host, **PIXELS)
    # Bicubic values and the noise of erasing may lie outside.
    batches = batches.map(lambda images, labels: (tf.clip_by_value(images, 0.0, 255.0), labels), tf.data.AUTOTUNE)
    return _delivered(data, batches)


def training_batches(
    data: Data, dataset: ImageDataset, seed: int, start_step: int = 0, host: tuple[int, int] = ONE_HOST
) -> tf.data.Dataset:
    """As `training_pixels`, with images scaled by `data.mean` and `data.std`.

    With mixup or CutMix labels are (B, C) float32: images are mixed within the host's part of the batch.
    """
    batches = _training(data, dataset, seed, start_step, host, data.mean, data.std)
    if data.augment.mixup_alpha or data.augment.cutmix_alpha:

        def mixed(step, batch):
            images, labels = batch
            labels = labels if dataset.several_answers else tf.one_hot(labels, len(dataset.class_names))  # (B, C)
            # -1 - seed: keys of batches are none of those of images.
            return mix(images, labels, data.augment, tf.stack([tf.constant(-1 - seed, tf.int64), 4 * step]))

        batches = batches.enumerate(start_step).map(mixed, tf.data.AUTOTUNE)
    return _delivered(data, batches)


def evaluation_batches(
    data: Data, dataset: ImageDataset, split: str, host: tuple[int, int] = ONE_HOST
) -> tf.data.Dataset:
    """Every image once, in order: ((B, H, W, 3) float32, labels, (B,) float32 weights).

    Images are what `keras_vit.Preprocessing` of the recipe's fields makes of them. The last batch is filled up with
    images of weight 0, so that shapes are static and every image counts once; a corrupt image has weight 0 too.
    The weight of all others makes Keras's mean loss that of the images if none is corrupt, see `corrupt_weightless`.
    """
    total = count_some(dataset, split)

    def prepare(number, image):
        return evaluation_image(data, pixels(dataset, image))

    size = _part(data, host)
    batches = prepared_batches(dataset.read(split).enumerate(), data.batch_size, prepare, host[0], size)
    batches = corrupt_weightless(batches, size, data.batch_size, total, data.max_corrupt)
    # Keras warns of data that ends without having said when.
    batches = batches.apply(tf.data.experimental.assert_cardinality(-(-total // data.batch_size)))
    return _distributable(batches.prefetch(tf.data.AUTOTUNE))


def evaluation_arrays(data: Data, dataset: ImageDataset, split: str) -> tuple[np.ndarray, np.ndarray]:
    """A whole split in memory: (n, H, W, 3) float32 and labels (n,) or (n, C), for small data."""
    batches = list(evaluation_batches(data, dataset, split).as_numpy_iterator())
    images, labels, weights = (np.concatenate(parts) for parts in zip(*batches))
    return images[weights > 0], labels[weights > 0]


def _training(data, dataset, seed, start_step, host, mean, std):
    check_images(data)
    size = _part(data, host)
    total = count_chosen(data, dataset, data.train_split)
    examples = read_examples(data, dataset, data.train_split, seed)
    if data.cache:
        examples = decoded_once(dataset, examples).cache()
    first = start_step * data.batch_size
    epoch, within = divmod(first, total)
    examples = shuffled_forever(examples, data.shuffle_images, seed, epoch).skip(within).enumerate(first)
    finish = training_image(data, seed, mean, std, dataset.brightest)

    def prepare(number, image):
        return finish(number, tf.io.read_file(image) if dataset.are_files and not data.cache else image)

    batches = prepared_batches(examples, data.batch_size, prepare, host[0], size)
    return corrupt_replaced(batches, size, total, data.max_corrupt)


def _part(data, host):
    if data.batch_size % host[1]:
        raise ValueError(f"A batch of {data.batch_size} images cannot be shared equally by {host[1]} machines.")
    return data.batch_size // host[1]


def _delivered(data, batches):
    """Prepared here or by a tf.data service, and ahead of the model.

    A service hands epochs out to its workers, so each image comes once an epoch, but the order of the batches is that
    in which they are ready: such a run cannot be repeated to the bit.
    """
    if data.service:
        policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        batches = batches.apply(tf.data.experimental.service.distribute(policy, data.service))
    return _distributable(batches.prefetch(tf.data.AUTOTUNE))


def _distributable(batches):
    """Each worker takes every n-th batch's part; data sets of few files cannot be split by file."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.deterministic = True
    return batches.with_options(options)
