"""The pictures of test sets, as the training set is compared with them."""

import os

import numpy as np
from PIL import Image

from keras_vit.recipes.data import decoded_pictures
from keras_vit.recipes.data.datasets import count_examples, open_dataset
from keras_vit.recipes.data.folders import files_below
from keras_vit.recipes.prepare.duplicates import KnownPictures, fingerprint
from keras_vit.recipes.prepare.picture_files import KEPT, hashed, in_threads
from keras_vit.recipes.recipe import Data


def known_pictures(sources: tuple[str, ...], threshold_bits: int, data_dir: str | None = None):
    """Hashes test sets: at about 300 pictures a second and core, 100,000 take minutes.

    Args:
        sources: "folder:/path", all pictures in it at any depth; or a data set as in `Data`, with its split behind @:
            "cifar10@test", "imagenet2012@validation", "tfrecord:/path@test". Without @ it is "test".
        threshold_bits: See `KnownPictures`.
        data_dir: See `Data`.

    Returns:
        The KnownPictures, and what `picture_files.hashed` returned for pictures that cannot be read.

    Raises:
        ValueError: A data set or split is unknown, or a source has no pictures.
    """
    names, hashes, unreadable = [], [], []
    for source in sources:
        before = len(names)
        if source.startswith("folder:"):
            path = os.path.expanduser(source.removeprefix("folder:"))
            for outcome, name, result in in_threads(hashed, files_below(path), path):
                if outcome == KEPT:
                    names.append(f"{path}/{name}")
                    hashes.append(result)
                else:
                    unreadable.append((outcome, f"{path}/{name}", result))
        else:
            for name, words in _of_dataset(source, data_dir):
                names.append(name)
                hashes.append(words)
        if len(names) == before:
            raise ValueError(f"There are no pictures in {source} to compare with.")
    return KnownPictures(names, np.array(hashes), threshold_bits), unreadable


def _of_dataset(source, data_dir):
    name, _, split = source.partition("@")
    split = split or "test"
    dataset = open_dataset(Data(dataset=name, data_dir=data_dir))
    count_examples(dataset, split)  # says which splits there are
    number = 0
    for pictures, _ in decoded_pictures(dataset, split, 256):
        for picture in pictures:
            yield f"{name}@{split} {number}", fingerprint(Image.fromarray(picture))[0]
            number += 1
