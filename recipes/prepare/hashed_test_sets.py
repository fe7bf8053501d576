"""Hashes the images of test sets, whose copies are removed from the training set."""

import os

import numpy as np
from PIL import Image

from keras_vit.recipes.data.datasets import open_dataset
from keras_vit.recipes.data.decode import decode_examples
from keras_vit.recipes.data.image_dataset import count_examples
from keras_vit.recipes.data.image_folder import walk_files
from keras_vit.recipes.prepare.duplicates import HashIndex, fingerprint
from keras_vit.recipes.prepare.outcomes import STORED, UNREADABLE, hash_file, map_in_threads
from keras_vit.recipes.recipe import Data


def hash_test_sets(sources: tuple[str, ...], threshold_bits: int, data_dir: str | None = None):
    """Hashes test sets; at about 300 images per second and core, 100,000 take minutes.

    Args:
        sources: "folder:/path", all images in it at any depth; or a dataset as in `Data` with its split after @:
            "cifar10@test", "imagenet2012@validation", "tfrecord:/path@test". Without @ the split is "test".
        threshold_bits: See `HashIndex`.
        data_dir: See `Data`.

    Returns:
        The `HashIndex`, and (UNREADABLE, name, (error,)) of each image that cannot be read.

    Raises:
        ValueError: A dataset or split is unknown, or a source has no images.
    """
    names: list[str] = []
    hashes, unreadable = [], []
    for source in sources:
        before = len(names)
        outcomes = _hash_folder(source) if source.startswith("folder:") else _hash_dataset(source, data_dir)
        for outcome, name, result in outcomes:
            if outcome == STORED:
                names.append(name)
                hashes.append(result)
            else:
                unreadable.append((outcome, name, result))
        if len(names) == before:
            raise ValueError(f"There are no images in {source} to compare with.")
    return HashIndex(names, np.array(hashes), threshold_bits), unreadable


def _hash_folder(source):
    """Yields what `hash_file` returns, of every image at any depth."""
    path = os.path.expanduser(source.removeprefix("folder:"))
    for outcome, name, result in map_in_threads(hash_file, walk_files(path), path):
        yield outcome, f"{path}/{name}", result


def _hash_dataset(source, data_dir):
    """Yields the same of a dataset's split; names contain the images' indices."""
    dataset_name, at, split = source.rpartition("@")
    if not at or "/" in split:  # an @ of the path
        dataset_name, split = source, ""
    split = split or "test"
    dataset = open_dataset(Data(dataset=dataset_name, data_dir=data_dir))
    count_examples(dataset, split)  # an unknown split raises an error that lists the known ones
    images = decode_examples(dataset, dataset.read(split)).as_numpy_iterator()
    for index, (_, image, _) in enumerate(images):
        name = f"{dataset_name}@{split} {index}"
        if image.size:
            yield STORED, name, fingerprint(Image.fromarray(image))[0]
        else:
            yield UNREADABLE, name, ("cannot be decoded",)
