"""Frozen features of a split's images, kept on disk. n images, D width."""

import hashlib
import io
import json
from pathlib import Path

import keras
import numpy as np

from keras_vit.cache_dir import cache_dir
from keras_vit.recipes.data import count_examples, decoded_images
from keras_vit.recipes.data.datasets import ImageDataset
from keras_vit.recipes.data.examples import read_encoded
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.remote_files import write_file
from keras_vit.version import __version__


def cache_folder() -> Path:
    """keras_vit/features in KERAS_HOME, by default in ~/.keras; it may be deleted at any time."""
    return cache_dir() / "features"


def features_of(
    model,
    dataset: ImageDataset,
    split: str,
    batch_size: int = 64,
    numbers=None,
    max_corrupt: float = Data.max_corrupt,
    verbose: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """What the model's head would see of each image, with its label, in the split's order.

    Features of a `keras.Model` are computed once: they are kept under a hash of the model's configuration and weights
    and of the images and labels themselves, so that neither a changed weight nor a changed image goes unnoticed.

    Args:
        model: Anything with `features` and `preprocess`, as all models of keras_vit.
        dataset: From `open_dataset`.
        split: Such as "test" or "train[:10%]".
        batch_size: Images at a time.
        numbers: Of the images that are wanted, an array from 0; all of them without.
        max_corrupt: Largest share of corrupt images, which are left out.
        verbose: Show progress.

    Returns:
        (n, D) float32 and (n,) int64.

    Raises:
        ValueError: `batch_size` is below 1, the model does not pool, images have no label or several, or too many are
            corrupt.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
    kept = None
    if isinstance(model, keras.Model):
        kept = cache_folder() / f"{_key(model, dataset, split, numbers, max_corrupt)}.npz"
        if kept.exists():
            with np.load(kept, allow_pickle=False) as arrays:
                return arrays["features"], arrays["labels"]
    batches = decoded_images(dataset, split, batch_size, max_corrupt, numbers)
    total = count_examples(dataset, split) if numbers is None else len(numbers)
    progress = keras.utils.Progbar(-(-total // batch_size), unit_name="batch", verbose=int(verbose))
    features, labels = [], []
    for images, answers in batches:
        if answers.ndim != 1 or answers.min() < 0:
            raise ValueError(f"Each image of {split!r} of {dataset.name} needs one label. Choose other data.")
        features.append(np.asarray(model.features(model.preprocess(images)), "float32"))  # (B, D)
        labels.append(answers)
        if features[-1].ndim != 2:
            raise ValueError(f"Features must be (B, D), of a model that pools. Received: {features[-1].shape}")
        progress.add(1)
    features, labels = np.concatenate(features), np.concatenate(labels)
    if kept:
        _keep(kept, features, labels)
    return features, labels


def _key(model, dataset, split, numbers, max_corrupt):
    config = {name: value for name, value in model.get_config().items() if name != "name"}  # names count models
    key = hashlib.sha256(json.dumps([__version__, max_corrupt, config], sort_keys=True).encode())
    for weight in model.weights:
        key.update(np.ascontiguousarray(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))))
    wanted = None if numbers is None else set(np.asarray(numbers).tolist())
    for number, (image, label) in enumerate(read_encoded(dataset, split)):
        if wanted is None or number in wanted:
            key.update(hashlib.sha256(image).digest())
            key.update(np.asarray(label).tobytes())
    return key.hexdigest()


def _keep(file, features, labels):
    content = io.BytesIO()
    np.savez(content, features=features, labels=labels)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content.getvalue())
