"""From a data set's name to its encoded images and labels. C classes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.recipes.data.digits import Digits
from keras_vit.recipes.data.image_folder import open_folder
from keras_vit.recipes.data.records import open_records
from keras_vit.recipes.data.splits import numbered, parts
from keras_vit.recipes.data.vtab import TASKS
from keras_vit.recipes.recipe import Data


@dataclass(frozen=True)
class ImageDataset:
    """A data set of labeled images, as `open_dataset` returns it.

    Args:
        name: As in the recipe.
        class_names: In the order of their numbers, C of them.
        splits: Number of images by name of the split.
        read: From a split, such as "train[:98%]", to its images in an order that never changes: (name of the image
            for the log, string; encoded image, string; label).
        are_files: The images are paths instead, to be read when they are needed: names are cheap to shuffle and skip.
        several_answers: Labels are (C,) float32 with a 1 for each right class, and not int64 numbers.
        brightest: The largest value of a pixel; pixels are multiplied by 255 // brightest.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, int]
    read: Callable[[str], tf.data.Dataset]
    are_files: bool = False
    several_answers: bool = False
    brightest: int = 255


def open_dataset(data: Data) -> ImageDataset:
    """Opens a recipe's data; what has to be downloaded or prepared is.

    Raises:
        ValueError: The data set is unknown, or is not laid out as expected.
    """
    kind, _, place = data.dataset.partition(":")
    place = os.path.expanduser(place)
    if kind == "folder":
        return ImageDataset(data.dataset, *open_folder(place), are_files=True)
    if kind == "tfrecord":
        if tf.io.gfile.exists(tf.io.gfile.join(place, "features.json")):
            return from_builder(tfds.builder_from_directory(place), data.dataset)
        return ImageDataset(data.dataset, *open_records(place))
    if data.dataset.startswith("vtab/"):
        return _open_task(data.dataset, data.data_dir)
    return from_builder(prepared(data.dataset, data.data_dir), data.dataset)


def prepared(name: str, data_dir: str | None):
    """A builder of TensorFlow Datasets whose data is there; "digits" is scikit-learn's.

    Raises:
        ValueError: There is no such data set.
    """
    try:
        make = Digits if name == "digits" else partial(tfds.builder, name)
        builder = make(data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        raise ValueError(
            f"TensorFlow Datasets knows no data set {name!r}. Use 'digits', a name of "
            "https://www.tensorflow.org/datasets/catalog, 'vtab/<task>', 'folder:/path' with "
            "/path/<split>/<class>/<image>, or 'tfrecord:/path'."
        ) from error
    builder.download_and_prepare()
    return builder


def from_builder(
    builder, name: str, label: Callable | None = None, class_names: tuple[str, ...] = (), brightest: int = 255
) -> ImageDataset:
    """The images of a prepared builder of TensorFlow Datasets.

    Args:
        builder: Its images are the feature "image".
        name: As in the recipe.
        label: From an example's decoded features (the image stays encoded) to the number of its class; without it,
            the feature "label", or "real_label" with several right answers (ReaL, arXiv 2006.07159).
        class_names: Where the feature has none.
        brightest: The largest value of a pixel.

    Raises:
        ValueError: The features are missing, or labels are no classes.
    """
    features = dict(builder.info.features or {})
    answers = next((feature for feature in ("label", "real_label") if feature in features), None)
    if not isinstance(features.get("image"), tfds.features.Image) or not (label or answers):
        raise ValueError(f"The data set {name!r} has the features {sorted(features)}; 'image' and 'label' are needed.")
    several = not label and answers == "real_label"
    if not class_names:
        classes = features[answers].feature if several else features[answers]
        if not isinstance(classes, tfds.features.ClassLabel):
            raise ValueError(
                f"{answers!r} of the data set {name!r} is {classes}, where a ClassLabel is needed, which names the "
                "classes. Prepare the data set with one, or its images by class with keras-vit prepare."
            )
        class_names = classes.names
    images = [name for name, feature in features.items() if isinstance(feature, tfds.features.Image)]
    decoders = dict.fromkeys(images, tfds.decode.SkipDecoding())

    def read(split):
        def image(number, example):
            if several:
                right = tf.reduce_sum(tf.one_hot(example[answers], len(class_names)), axis=0)  # (C,)
                return numbered(split, number), example["image"], right
            answer = label(example) if label else example[answers]
            return numbered(split, number), example["image"], tf.cast(answer, tf.int64)

        return builder.as_dataset(split, decoders=decoders, shuffle_files=False).enumerate().map(image)

    splits = {split: info.num_examples for split, info in builder.info.splits.items()}
    return ImageDataset(name, tuple(class_names), splits, read, several_answers=several, brightest=brightest)


def count_examples(dataset: ImageDataset, split: str) -> int:
    """Number of images of a split; raises ValueError with the splits there are if it is unknown."""
    return sum(end - first for _, first, end in parts(dataset.splits, split, dataset.name))


def class_names(dataset: ImageDataset) -> list[str]:
    """Names of the classes, in the order of their numbers."""
    return list(dataset.class_names)


def _open_task(name, data_dir):
    task = TASKS.get(name.removeprefix("vtab/"))
    if not task:
        raise ValueError(f"VTAB has no task {name!r}. Tasks: {', '.join('vtab/' + known for known in TASKS)}")
    return from_builder(prepared(task.dataset, data_dir), name, task.label, task.class_names, task.brightest)
