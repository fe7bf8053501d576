"""The images of test sets, as the training set is compared with them."""

import os

import numpy as np
from PIL import Image

from keras_vit.recipes.data.datasets import count_examples, open_dataset
from keras_vit.recipes.data.examples import decoded_once
from keras_vit.recipes.data.folders import files_below
from keras_vit.recipes.prepare.duplicates import KnownImages, fingerprint
from keras_vit.recipes.prepare.image_files import KEPT, UNREADABLE, hashed, in_threads
from keras_vit.recipes.recipe import Data


def known_images(sources: tuple[str, ...], threshold_bits: int, data_dir: str | None = None):
    """Hashes test sets: at about 300 images a second and core, 100,000 take minutes.

    Args:
        sources: "folder:/path", all images in it at any depth; or a data set as in `Data`, with its split behind @:
            "cifar10@test", "imagenet2012@validation", "tfrecord:/path@test". Without @ it is "test".
        threshold_bits: See `KnownImages`.
        data_dir: See `Data`.

    Returns:
        The KnownImages, and (UNREADABLE, name, (error,)) of each image that cannot be read.

    Raises:
        ValueError: A data set or split is unknown, or a source has no images.
    """
    names, hashes, unreadable = [], [], []
    for source in sources:
        before = len(names)
        found = _of_folder(source) if source.startswith("folder:") else _of_dataset(source, data_dir)
        for outcome, name, result in found:
            if outcome == KEPT:
                names.append(name)
                hashes.append(result)
            else:
                unreadable.append((outcome, name, result))
        if len(names) == before:
            raise ValueError(f"There are no images in {source} to compare with.")
    return KnownImages(names, np.array(hashes), threshold_bits), unreadable


def _of_folder(source):
    """As `image_files.hashed`, of every image at any depth."""
    path = os.path.expanduser(source.removeprefix("folder:"))
    for outcome, name, result in in_threads(hashed, files_below(path), path):
        yield outcome, f"{path}/{name}", result


def _of_dataset(source, data_dir):
    """The same of a data set's split; names have the images' numbers in it."""
    place, at, split = source.rpartition("@")
    if not at or "/" in split:  # an @ of the path
        place, split = source, ""
    split = split or "test"
    dataset = open_dataset(Data(dataset=place, data_dir=data_dir))
    count_examples(dataset, split)  # says which splits there are
    images = decoded_once(dataset, dataset.read(split)).as_numpy_iterator()
    for number, (_, image, _) in enumerate(images):
        name = f"{place}@{split} {number}"
        if image.size:
            yield KEPT, name, fingerprint(Image.fromarray(image))[0]
        else:
            yield UNREADABLE, name, ("cannot be decoded",)
