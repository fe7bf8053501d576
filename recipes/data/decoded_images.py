"""Images of a split as arrays of their own sizes, for what is not `fit`. H W pixels."""

import logging

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.datasets import ImageDataset
from keras_vit.recipes.data.examples import count_some, pixels, undamaged
from keras_vit.recipes.recipe import Data


def decoded_images(
    dataset: ImageDataset, split: str, batch_size: int, max_corrupt: float = Data.max_corrupt, numbers=None
):
    """Yields lists of up to `batch_size` images, (H, W, 3) uint8 of any size, and labels; each once, in order.

    Corrupt images are left out and named in the log.

    Args:
        dataset: From `open_dataset`.
        split: Such as "test" or "train[:10%]".
        batch_size: Images at a time.
        max_corrupt: Largest share of corrupt images.
        numbers: Of the images that are wanted, an array from 0; all of them without.

    Raises:
        ValueError: `batch_size` is below 1, there are no images, more than the share `max_corrupt` is corrupt, or a
            file that holds them is.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
    total = count_some(dataset, split)
    wanted = np.ones(total, bool) if numbers is None else np.isin(np.arange(total), numbers)
    images, labels, good = [], [], ~wanted
    for number, image, label in _readable(dataset, split, wanted):
        good[number] = True
        images.append(image)
        labels.append(label)
        if len(images) == batch_size:
            yield images, np.array(labels)
            images, labels = [], []
    if images:
        yield images, np.array(labels)
    if not good.all():
        _tell_corrupt(dataset, split, good, max_corrupt * wanted.sum())


def _readable(dataset, split, wanted):
    """Yields the number, the pixels and the label of each wanted image that can be decoded."""

    def decoded(number, example):
        # Errors of this image only: one of the files that hold the images would come again and again, for ever.
        one = tf.data.Dataset.from_tensors(example[1]).map(lambda encoded: pixels(dataset, encoded))
        return one.ignore_errors(log_warning=True).map(lambda image: (number, image, example[2]))

    examples, end = dataset.read(split), 1 + max(np.flatnonzero(wanted), default=-1)
    if end < len(wanted):  # the filter alone would read on, to the end of ImageNet
        examples = examples.take(end)
    examples = examples.enumerate().filter(lambda number, _: tf.constant(wanted)[number])
    examples = examples.interleave(decoded, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    with undamaged(dataset, split):
        yield from examples.as_numpy_iterator()


def _tell_corrupt(dataset, split, good, most):
    names = dataset.read(split).map(lambda name, image, label: name).as_numpy_iterator()
    names = [name.decode() for name, right in zip(names, good) if not right]
    logging.getLogger(__name__).warning("Left out, cannot be decoded: %s", ", ".join(names))
    if len(names) > most:
        raise ValueError(
            f"{len(names)} images of {split!r} of {dataset.name} cannot be decoded; {most:g} would be let pass. Mend "
            f"or remove them: {', '.join(names[:5])}"
        )
