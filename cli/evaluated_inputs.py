"""Checks WEIGHTS and DATASET of commands that apply a model, before TensorFlow is imported, which takes seconds."""

import os
import re
from pathlib import Path

from keras_vit_cli.classify.exported import is_exported
from keras_vit_cli.given_paths import check_dataset_path, check_weights

MODEL_FILES = ("model.keras", "recipe.json", "model.safetensors", "model.weights.h5")
DATASETS = ("folder:", "csv:", "tfrecord:")
# What no name of TensorFlow Datasets contains, which is name/config:version.
NO_DATASET_NAME = re.compile(r"[^a-z0-9_/.:]|^[./]|/$")


def check_model(weights: str, instead: str):
    """Checks weights of a Keras model.

    Args:
        weights: As for `keras_vit.load`.
        instead: What to do with an exported model, a sentence.

    Raises:
        ValueError: They are a .tflite file or a SavedModel.
        FileNotFoundError: See `check_weights`.
    """
    if is_exported(weights):
        raise ValueError(f"Expected the Keras model or its weights. Received: the exported {weights}. {instead}")
    check_weights(weights)


def check_model_and_dataset(weights: str, dataset: str):
    """Checks what a command measures, and on which images.

    Raises:
        ValueError: The arguments are swapped; the weights are an exported model; the dataset is a folder without
            "folder:", or there is nothing at its path.
        FileNotFoundError: See `check_weights`.
    """
    if weights.startswith(DATASETS) or (_is_model(dataset) and not _is_model(weights)):
        raise ValueError(
            f"Expected weights and a dataset, in this order. Received: {weights} as weights, {dataset} as dataset. "
            f"Swap them: weights {dataset}, dataset {with_prefix(weights)}"
        )
    check_model(
        weights,
        f"keras-vit export WEIGHTS --dataset {with_prefix(dataset)} --output FOLDER measures the accuracy of the files "
        f"that it writes; keras-vit classify IMAGES --model {weights} prints the answers of this one.",
    )
    check_dataset(dataset)


def check_dataset(dataset: str):
    """Raises ValueError for a folder without "folder:", or a path of a dataset where there is nothing."""
    if with_prefix(dataset) != dataset and not _is_dataset_name(dataset):
        raise ValueError(f"{dataset!r} is a folder. Did you mean {with_prefix(dataset)}?")
    check_dataset_path(dataset)


def with_prefix(dataset: str) -> str:
    """The dataset, with "folder:" if it is an existing folder without it."""
    return f"folder:{dataset}" if os.path.isdir(os.path.expanduser(dataset)) else dataset


def _is_dataset_name(text) -> bool:
    """Whether this, which is also a folder, is the name of a dataset."""
    if NO_DATASET_NAME.search(text):
        return False
    if text == "digits" or text.startswith("vtab/"):
        return True
    import tensorflow_datasets as tfds  # imports TensorFlow only when data is read

    try:
        tfds.builder_cls(re.split("[/:]", text)[0])
    except tfds.core.DatasetNotFoundError:
        return False
    return True


def _is_model(text) -> bool:
    """Whether a text can only be weights: a file, a folder or a name of them."""
    from keras_vit.trained import packaged_names
    from keras_vit.weights.published import FILES, resolve

    if text.endswith(FILES) or text in packaged_names() or any((Path(text) / file).is_file() for file in MODEL_FILES):
        return True
    try:
        return resolve(text) is not None
    except ValueError:  # as "cifar10/3.0.2", which starts like a name in the package
        return False
