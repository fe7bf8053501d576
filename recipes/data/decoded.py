"""Pictures of a split as arrays of their own sizes, for what is not `fit`. H W pixels."""

import logging

import numpy as np
import tensorflow as tf

from keras_vit.recipes.data.datasets import PictureDataset
from keras_vit.recipes.data.examples import count_some, pixels
from keras_vit.recipes.recipe import Data


def decoded_pictures(
    dataset: PictureDataset, split: str, batch_size: int, max_corrupt: float = Data.max_corrupt, numbers=None
):
    """Yields lists of up to `batch_size` pictures, (H, W, 3) uint8 of any size, and labels; each once, in order.

    Corrupt pictures are left out and named in the log.

    Args:
        dataset: From `open_dataset`.
        split: Such as "test" or "train[:10%]".
        batch_size: Pictures at a time.
        max_corrupt: Largest share of corrupt pictures.
        numbers: Of the pictures that are wanted, an array from 0; all of them without.

    Raises:
        ValueError: There are no pictures, or more than the share `max_corrupt` is corrupt.
    """
    total = count_some(dataset, split)
    wanted = np.ones(total, bool) if numbers is None else np.isin(np.arange(total), numbers)
    examples = dataset.read(split).enumerate().filter(lambda number, _: tf.constant(wanted)[number])
    decoded = examples.map(
        lambda number, example: (number, pixels(dataset, example[1]), example[2]), tf.data.AUTOTUNE
    ).ignore_errors(log_warning=True)
    pictures, labels, good = [], [], ~wanted
    for number, picture, label in decoded.as_numpy_iterator():
        good[number] = True
        pictures.append(picture)
        labels.append(label)
        if len(pictures) == batch_size:
            yield pictures, np.array(labels)
            pictures, labels = [], []
    if pictures:
        yield pictures, np.array(labels)
    if not good.all():
        _tell_corrupt(dataset, split, good, max_corrupt * wanted.sum())


def _tell_corrupt(dataset, split, good, most):
    names = dataset.read(split).map(lambda name, picture, label: name).as_numpy_iterator()
    names = [name.decode() for name, right in zip(names, good) if not right]
    logging.getLogger(__name__).warning("Left out, cannot be decoded: %s", ", ".join(names))
    if len(names) > most:
        raise ValueError(
            f"{len(names)} pictures of {split!r} of {dataset.name} cannot be decoded; {most:g} would be let pass. Mend "
            f"or remove them: {', '.join(names[:5])}"
        )
