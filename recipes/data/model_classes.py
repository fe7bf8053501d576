"""Whether a dataset fits a classifier: the same classes, labels in the order of the outputs, labels to compare with."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import tensorflow as tf

from keras_vit.class_names import describe_difference, labels_file
from keras_vit.models.classification import check_no_projection
from keras_vit.recipes.data.arrays import read_arrays
from keras_vit.recipes.data.folder_layout import LABELS_IN_A_FILE
from keras_vit.recipes.data.image_dataset import ImageDataset, count_nonempty
from keras_vit.trained import local_folder


def check_classifier(model):
    """Raises ValueError for what cannot be evaluated on labeled images: other models of Keras, and projections."""
    if not hasattr(model, "preprocessing"):
        raise ValueError(
            f"Expected a model of keras_vit or an exported file. Received: {model.name}, a {type(model).__name__}. "
            "Make it one by keras_vit.ImageClassifier.from_model(model, preprocessing=...)."
        )
    check_no_projection(model)


def with_model_classes(dataset: ImageDataset, model, weights=None) -> ImageDataset:
    """The dataset with labels that number the outputs of a model.

    If each class of the dataset is one of the model's by its name, labels are mapped by name, also those of some of the
    model's classes. Otherwise the number of classes must be that of the outputs: names of other projects' weights may
    be the same classes in other words.

    Args:
        model: A classifier, with `class_names` if they are known.
        weights: Its file, folder or name; None for a model in memory.

    Raises:
        ValueError: The model has another number of classes, or names in a .keras file or beside the weights that the
            dataset does not have.
    """
    names = model.class_names
    if names and len(set(names)) == len(names) and set(dataset.class_names) <= set(names):
        return _relabeled(dataset, names)
    check_same_classes(dataset, names, weights, "The model is", "fine-tune the model on this data first")
    check_class_count(dataset, model.num_classes)
    if not names:
        _note_of_numbers(dataset, weights)
    return dataset


def _relabeled(dataset, names: Sequence[str]) -> ImageDataset:
    """The dataset with the labels that its classes have in `names`, which contain them."""
    if dataset.class_names == tuple(names):
        return dataset
    number = {name: i for i, name in enumerate(names)}
    index = tf.constant([number[name] for name in dataset.class_names], tf.int64)

    def relabel(name, image, label):
        if dataset.multi_label:
            return name, image, tf.scatter_nd(index[:, None], label, (len(names),))
        return name, image, tf.where(label < 0, label, tf.gather(index, tf.maximum(label, 0)))  # below 0: no label

    shuffled = dataset.read_shuffled
    return replace(
        dataset,
        class_names=tuple(names),
        read=lambda split: dataset.read(split).map(relabel),
        read_shuffled=shuffled and (lambda split, seed: shuffled(split, seed).map(relabel)),
    )


def _note_of_numbers(dataset, weights):
    """Logs that classes named by numbers are in the order of text, where no names say which output is which."""
    names = dataset.class_names
    if all(name.isdecimal() for name in names) and (ordered := sorted(names, key=int)) != list(names):
        index = next(i for i, name in enumerate(names) if name != ordered[i])
        to = " to model.class_names" if weights is None else f", one per line, to {labels_file(local_folder(weights))}"
        logging.getLogger(__name__).warning(
            f"The classes of {dataset.name!r} are in the order of text: output {index} counts as {names[index]!r}. If "
            f"the outputs are in the order of numbers, write the names in that order{to}."
        )


def check_same_classes(dataset: ImageDataset, names, weights, role: str, fix: str):
    """Raises ValueError if a model has other classes than a dataset.

    Args:
        weights: Its file, folder or name; None for a model in memory. Names in a .keras file or beside the weights must
            be those of the dataset. Others may be the same classes in other words: only another order is an error.
    """
    if names is None or not (difference := describe_difference(names, dataset.class_names)):
        return
    path = local_folder(weights)
    is_own = weights is not None and (str(weights).endswith(".keras") or labels_file(path).is_file())
    if is_own or sorted(names) == sorted(dataset.class_names):
        edit = ""
        if is_own and "://" not in str(weights):  # of remote weights only the file itself is read
            copy, file = "", labels_file(path)
            if path != weights:  # installed files are not edited
                copy, file = f"run keras-vit convert {weights} --output copy.keras and ", labels_file("copy.keras")
            edit = f"; if only the names differ, {copy}write those of the data into {file}"
        raise ValueError(
            f"{role} {weights or 'the model to start from'}, whose classes (there) are not those of {dataset.name!r} "
            f"(here): {difference}. Use data with the model's classes, or {fix}{edit}."
        )


def check_class_count(dataset: ImageDataset, num_classes: int):
    """Raises ValueError unless a model has as many outputs as there are classes."""
    if (count := len(dataset.class_names)) == num_classes:
        return
    if count == 1:
        raise ValueError(
            f"{dataset.name!r} has one class, {dataset.class_names[0]!r}, but the model has {num_classes or 'no head'}."
            f" {LABELS_IN_A_FILE}."
        )
    part = " If these are some of the model's classes, see docs/data.md, A part of a model's classes."
    raise ValueError(
        f"{dataset.name!r} has {count} classes, but the model has {num_classes or 'no head'}. Fine-tune it on "
        f"this data first.{part if count < num_classes else ''}"
    )


def check_several_classes(dataset: ImageDataset):
    """Raises ValueError for a single class; of several labels per image, one is a question of yes and no."""
    if not dataset.multi_label and len(dataset.class_names) == 1:
        raise ValueError(
            f"{dataset.name!r} has one class, {dataset.class_names[0]!r}: any model is right. Add other classes. "
            f"{LABELS_IN_A_FILE}."
        )


def check_labels(dataset: ImageDataset, split: str):
    """Raises ValueError if the first image of a split has no label; TensorFlow Datasets has -1 for unpublished ones."""
    if any((np.asarray(label) < 0).any() for *_, label in dataset.read(split).take(1).as_numpy_iterator()):
        raise unlabeled(dataset, split)


def unlabeled(dataset: ImageDataset, split: str) -> ValueError:
    """The error for a split whose labels are not public, such as the test set of ImageNet."""
    return ValueError(
        f"The images of {split!r} of {dataset.name!r} have no labels to train or evaluate on. Choose another split, "
        "such as 'validation'."
    )


MOST_READ = 50_000  # images whose labels are read beside a training, where images and labels are in one file


def labels_are_cheap(dataset: ImageDataset, splits: Iterable[str]) -> bool:
    """Whether all labels of some splits can be read in seconds."""
    return dataset.stores_paths or sum(count_nonempty(dataset, split) for split in splits) <= MOST_READ


def class_counts(dataset: ImageDataset, split: str) -> np.ndarray:
    """(C,) int64: the number of images of each class in a split; decodes none."""
    counts = np.zeros(len(dataset.class_names), "int64")
    for batch in read_arrays(dataset, split, lambda name, stored, label: label):
        if dataset.multi_label:
            counts += np.count_nonzero(batch > 0, axis=0)
        else:
            counts += np.bincount(batch[batch >= 0], minlength=len(counts))
    return counts


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """(C,) weights of classes: images / (classes with images x images of the class), as scikit-learn's "balanced"."""
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.maximum(counts, 1)), 0.0)
