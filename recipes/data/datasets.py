"""Opens a dataset by its name in the recipe: TensorFlow Datasets, VTAB-1k, a folder, lists of images, TFRecords."""

import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from urllib.parse import urlsplit

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.progress import downloading, shows_bars
from keras_vit.recipes.configs.vtab import TASKS
from keras_vit.recipes.data.csv_labels import open_csv
from keras_vit.recipes.data.image_dataset import ImageDataset, decoded_for, name_by_index
from keras_vit.recipes.data.image_folder import open_folder
from keras_vit.recipes.data.parquet import open_hub
from keras_vit.recipes.data.tfrecords import check_prepared, open_tfrecords
from keras_vit.recipes.recipe import Data

# The test set is so large that one image is 0.2 percentage points of accuracy.
DIGITS_SPLITS = {"train": 1097, "validation": 200, "test": 500}
CONNECT_SECONDS = 10  # a firewall may drop packets instead of rejecting them


def open_dataset(data: Data) -> ImageDataset:
    """Opens a recipe's dataset; TensorFlow Datasets downloads and prepares it if necessary.

    Raises:
        ValueError: The dataset is unknown, or is not laid out as expected.
        ConnectionError: It cannot be downloaded.
    """
    return decoded_for(_open(data), data)


def _open(data: Data) -> ImageDataset:
    source, _, path = data.dataset.partition(":")
    path = os.path.expanduser(path)
    if source == "folder":
        return open_folder(path, data.dataset, data.group, data.converted)
    if source == "csv":
        return open_csv(path, data.dataset)
    if source == "hf":
        return open_hub(path, data.dataset)
    if source == "tfrecord":
        if tf.io.gfile.exists(tf.io.gfile.join(path, "features.json")):
            builder = tfds.builder_from_directory(path)
            check_prepared(builder)
            return from_builder(builder, data.dataset)
        return open_tfrecords(path, data.dataset)
    if data.dataset.startswith("vtab/"):
        return _open_task(data.dataset, data.data_dir)
    return from_builder(prepare_builder(data.dataset, data.data_dir), data.dataset)


class Digits(tfds.core.GeneratorBasedBuilder):
    """Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak; UCI, 1998), the part in scikit-learn."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=[str(digit) for digit in range(10)]),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        # The file is sorted by writer, so splits are drawn at random. RandomState never changes, and 2 is its first
        # seed with at least 100 training images of every class.
        order = np.random.RandomState(2).permutation(sum(DIGITS_SPLITS.values()))
        bounds = np.cumsum(list(DIGITS_SPLITS.values()))[:-1]
        return {name: self._generate_examples(part) for name, part in zip(DIGITS_SPLITS, np.split(order, bounds))}

    def _generate_examples(self, indices):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
        for key, index in enumerate(indices):
            yield key, {"image": images[index], "label": int(digits.target[index])}


def prepare_builder(name: str, data_dir: str | None):
    """Returns a builder of TensorFlow Datasets whose data is prepared; see `open_dataset` for errors."""
    try:
        make_builder = Digits if name == "digits" else partial(tfds.builder, name)
        builder = make_builder(data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        hint = f"It is a folder. Did you mean 'folder:{name}'? " if os.path.isdir(name) else ""
        raise ValueError(
            f"Unknown dataset {name!r}. {hint}Use 'digits', a name of https://www.tensorflow.org/datasets/catalog, "
            "'vtab/<task>', 'folder:/path' with /path/<split>/<class>/<image>, 'csv:/path', 'hf:owner/name', or "
            "'tfrecord:/path'."
        ) from error
    download_and_prepare(builder, name)
    return builder


def download_and_prepare(builder, name: str):
    """Downloads and prepares a dataset, unless it is prepared.

    A missing connection raises ConnectionError at once, not after the minutes of retries of TensorFlow Datasets;
    archives that have to be downloaded by hand and are missing, ValueError.
    """
    import requests  # TensorFlow Datasets downloads with it: the check has the same proxies and certificates

    try:
        if url := _first_download(builder):
            with suppress(requests.ReadTimeout), requests.get(url, stream=True, timeout=CONNECT_SECONDS):
                pass  # it answers, or is slow to
        tfds.display_progress_bar(shows_bars())
        size = f" ({builder.info.download_size})" if builder.info.download_size else ""
        what = f"and preparing {name}{size} in {builder.data_path}"
        with nullcontext() if builder.data_path.exists() else downloading(what):
            builder.download_and_prepare()
    except requests.ConnectionError as error:
        host = urlsplit(str(error.request.url)).hostname if error.request else "a server"
        kind = type(error).__name__
        reason = "" if kind == "ConnectionError" else f" ({kind})"  # such as ProxyError, SSLError
        raise ConnectionError(
            f"The dataset {name!r} cannot be downloaded: no connection to {host}{reason}. Check the network, or use "
            "the dataset 'folder:/path' with /path/<split>/<class>/<image>, or copy the dataset from a machine where "
            f"it was prepared to {builder.data_dir}."
        ) from error
    except (AssertionError, FileNotFoundError, tf.errors.NotFoundError) as error:
        if not builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
            raise
        folder = str(builder.data_dir_root / "downloads" / "manual")
        instructions = " ".join(builder.MANUAL_DOWNLOAD_INSTRUCTIONS.replace("manual_dir", folder).split())
        raise ValueError(
            f"The dataset {name!r} cannot be downloaded by a program, and its files are not in {folder}. Instructions "
            f"of TensorFlow Datasets: {instructions} For another folder set data_dir."
        ) from error


def _first_download(builder) -> str | None:
    """The address of one of the files to download; None if there is none, or some are there already."""
    if builder.data_path.exists() or builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return None
    addresses = [url for url in builder.url_infos or () if url.startswith("http")]
    # Beside each downloaded file is an .INFO file; in manual/ are files that were downloaded by other means.
    downloads = builder.data_dir_root / "downloads"
    patterns = ("*.INFO", f"{builder.name}/*.INFO", "manual/*")
    return None if any(any(downloads.glob(pattern)) for pattern in patterns) else next(iter(addresses), None)


def from_builder(
    builder, name: str, label: Callable | None = None, class_names: tuple[str, ...] = (), max_value: int = 255
) -> ImageDataset:
    """Opens the data of a prepared builder of TensorFlow Datasets.

    By default the label is the feature "label", or, with several correct classes, "real_label" (ReaL, arXiv 2006.07159)
    or "labels"; `label` maps an example's features, with the image still encoded, to it.
    """
    features = dict(builder.info.features or {})
    label_key = next((key for key in ("label", "real_label", "labels") if key in features), None)
    if not isinstance(features.get("image"), tfds.features.Image) or not (label or label_key):
        raise ValueError(
            f"The dataset {name!r} must have the features 'image' and 'label'. Received: {sorted(features)}"
        )
    multi_label = not label and label_key in ("real_label", "labels")
    if not class_names:
        feature = getattr(features[label_key], "feature", None) if multi_label else features[label_key]
        if not isinstance(feature, tfds.features.ClassLabel):
            raise ValueError(
                f"{label_key!r} of the dataset {name!r} must be a ClassLabel, which names the classes. Received: "
                f"{feature}. Prepare the dataset with one, or its images in a folder for each class with keras-vit "
                "prepare."
            )
        class_names = tuple(feature.names)
    image_keys = [key for key, feature in features.items() if isinstance(feature, tfds.features.Image)]
    decoders = dict.fromkeys(image_keys, tfds.decode.SkipDecoding())

    def to_example(name, example):
        if multi_label:
            target = tf.reduce_sum(tf.one_hot(example[label_key], len(class_names)), axis=0)  # (C,)
            target = tf.minimum(target, 1.0)  # a label may be there twice
        else:
            target = tf.cast(label(example) if label else example[label_key], tf.int64)
        return name, example["image"], target

    def read(split):
        examples = builder.as_dataset(split, decoders=decoders, shuffle_files=False).enumerate()
        return examples.map(lambda index, example: to_example(name_by_index(split, index), example))

    def read_shuffled(split, seed):
        # Each epoch would fill a cache of its own. Names contain the file: in this order, an index says nothing.
        config = tfds.ReadConfig(shuffle_seed=seed, try_autocache=False, add_tfds_id=True, enable_ordering_guard=False)
        examples = builder.as_dataset(split, decoders=decoders, shuffle_files=True, read_config=config)
        return examples.map(lambda example: to_example(example["tfds_id"], example))

    has_files = any(info.num_shards > 1 for info in builder.info.splits.values())
    splits = {split: info.num_examples for split, info in builder.info.splits.items()}
    return ImageDataset(
        name,
        class_names,
        splits,
        read,
        read_shuffled if has_files else None,
        multi_label=multi_label,
        max_value=max_value,
    )


def _open_task(name, data_dir):
    task = TASKS.get(name.removeprefix("vtab/"))
    if not task:
        raise ValueError(f"Unknown VTAB task {name!r}. Tasks: {', '.join(f'vtab/{task}' for task in TASKS)}")
    return from_builder(prepare_builder(task.dataset, data_dir), name, task.label, task.class_names, task.max_value)
