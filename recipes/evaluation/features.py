"""Frozen features of the images of a split, cached on disk. n images, D width."""

import hashlib
import io
import json
import logging
from pathlib import Path

import keras
import numpy as np

from keras_vit.images.preprocessing import Preprocessing
from keras_vit.progress import Progress
from keras_vit.recipes.data import ImageDataset, read_encoded, read_labels
from keras_vit.recipes.data.arrays import decoded_positions, read_arrays
from keras_vit.recipes.data.corrupt_images import count_skipped
from keras_vit.recipes.data.image_dataset import count_nonempty, decoded_for
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.remote_files import write_file
from keras_vit.version import __version__
from keras_vit.weights.downloads import cache_dir


def cache_folder() -> Path:
    """keras_vit/features in KERAS_HOME, which defaults to ~/.keras. It may be deleted at any time."""
    return cache_dir() / "features"


def extract_features(
    model,
    dataset: ImageDataset,
    split: str,
    batch_size: int = 64,
    indices=None,
    max_corrupt: float = Data.max_corrupt,
    verbose: bool = False,
    preprocessing: Preprocessing | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the model's head for each image, and the labels, in the order of the split.

    Features of a `keras.Model` are computed once and cached by a hash of the model's configuration and weights and of
    the images themselves, so a changed weight or image is never missed. Images that cannot be decoded are
    skipped, and named on standard error also where the others are cached.

    Args:
        model: Any object with `features` and `preprocess`, such as the models of keras_vit.
        dataset: From `open_dataset`.
        split: Such as "test" or "train[:10%]".
        batch_size: Number of images at a time.
        indices: Array of the positions in the split of the images to use, from 0; None for all.
        max_corrupt: Largest allowed fraction of corrupt images, which are skipped.
        verbose: Show the progress on standard error, see `keras_vit.progress`.
        preprocessing: Prepares the images; None for the model's own `preprocess`.

    Returns:
        (n, D) float32 and (n,) int64; (0, 0) and (0,) if no image can be decoded and `max_corrupt` is 1.

    Raises:
        ValueError: `batch_size` is below 1, the model does not pool, images have no label or several, or too many are
            corrupt.
        FloatingPointError: Features are NaN or infinite.
    """
    count_nonempty(dataset, split)
    labels = read_labels(dataset, split)
    if (labels if indices is None else labels[indices]).min(initial=0) < 0:
        raise ValueError(f"Each image of {split!r} of {dataset.name} must have one label. Choose other data.")
    features, positions = _extract_positions(
        model, dataset, split, batch_size, indices, max_corrupt, verbose, preprocessing
    )
    return features, labels[positions]


def _extract_positions(
    model, dataset, split, batch_size, indices=None, max_corrupt=Data.max_corrupt, verbose=False, preprocessing=None
) -> tuple[np.ndarray, np.ndarray]:
    """`extract_features` with the positions of the images in the split, (n,) int64, in place of their labels."""
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
    selected = np.arange(count_nonempty(dataset, split)) if indices is None else np.unique(indices)
    cached = None
    if isinstance(model, keras.Model):
        cached = cache_folder() / f"{_cache_key(model, dataset, split, indices, max_corrupt, preprocessing)}.npz"
        try:
            with open(cached, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                features, valid = arrays["features"], arrays["valid"]
            if not valid.all():
                names = np.concatenate(list(read_arrays(dataset, split, lambda name, stored, label: name)))
                count_skipped(dataset.name, names[selected[~valid]])
            return features, selected[valid]
        except Exception:  # missing or damaged, for which zipfile and NumPy have no class of errors: computed again
            pass
    progress = Progress(f"Features of {split}", len(selected), "images") if verbose else None
    decoded = decoded_for(dataset, preprocessing or getattr(model, "preprocessing", None))
    batches = decoded_positions(decoded, split, batch_size, max_corrupt, indices)
    features, positions = _compute(model, preprocessing or model.preprocess, batches, progress)
    if cached:
        _write(cached, features, np.isin(selected, positions))
    return features, positions


def _compute(model, preprocess, batches, progress):
    """Features of batches of images and their positions, and the positions."""
    feature_batches, position_batches = [], [np.zeros(0, "int64")]
    for images, positions in batches:
        features = np.asarray(model.features(preprocess(images)), "float32")  # (B, D)
        if features.ndim != 2:
            raise ValueError(f"Features must be (B, D): the model must pool. Received: {features.shape}")
        if not np.isfinite(features).all():
            raise FloatingPointError(
                "The model's features contain NaN or infinity: its weights are damaged, or its training diverged."
            )
        feature_batches.append(features)
        position_batches.append(positions)
        if progress:
            progress.add(len(images))
    if progress:
        progress.end()
    return np.concatenate(feature_batches or [np.zeros((0, 0), "float32")]), np.concatenate(position_batches)


def _cache_key(model, dataset, split, indices, max_corrupt, preprocessing):
    # The name contains a count of the models created before.
    config = {name: value for name, value in model.get_config().items() if name not in ("name", "preprocessing")}
    images = (preprocessing or model.preprocessing).get_config()
    del images["origin"]  # which changes no number
    key = hashlib.sha256(json.dumps([__version__, max_corrupt, config, images], sort_keys=True).encode())
    for weight in model.weights:
        key.update(np.ascontiguousarray(keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))))
    for image, _ in read_encoded(dataset, split, indices):
        key.update(hashlib.sha256(image).digest())
    return key.hexdigest()


def _write(file, features, valid):
    content = io.BytesIO()
    np.savez(content, features=features, valid=valid)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content.getvalue())
    except OSError as error:  # read-only or full: the next call computes them again
        logging.getLogger(__name__).warning("Features are computed again next time: %s", error)
