"""Whether a dataset fits a classifier: the same classes in the same order, and labels to compare with."""

import numpy as np

from keras_vit.class_names import describe_difference, labels_file, own_class_names
from keras_vit.recipes.data.image_dataset import ImageDataset


def check_model_classes(dataset: ImageDataset, num_classes: int, weights=None, own_names=None):
    """Raises ValueError unless the labels of a dataset mean the same as the outputs of a model.

    Args:
        weights: File, folder or name of the model. If the names of its classes are beside it, as in the folder of a
            run, they are compared too: with another order, all labels would be wrong.
        own_names: `class_names` of the model, which are compared if it is a .keras file without names beside it. Those
            of other projects may be the same classes in other words.
    """
    check_class_count(dataset, num_classes)
    beside = own_class_names(weights, num_classes) if weights is not None else None
    names = beside or (own_names if str(weights).endswith(".keras") else None)
    if names and (difference := describe_difference(names, dataset.class_names)):
        place = labels_file(weights) if beside else weights
        fix = "write those of the data into" + (" that file" if beside else f" {labels_file(weights)}")
        raise ValueError(
            f"{dataset.name!r} does not have the classes of the model in {place} (there) but others (here): "
            f"{difference}. Use data with the model's classes, or fine-tune the model on this data; if only the names "
            f"differ, {fix}."
        )


def check_same_classes(dataset: ImageDataset, names, weights, role: str, fix: str):
    """Raises ValueError if a model whose outputs a training keeps or imitates has other classes than a dataset.

    Args:
        weights: Its file, folder or name; None for a model in memory. Names in a .keras file or beside the weights must
            be those of the dataset. Others may be the same classes in other words: only another order is an error.
    """
    if names is None or not (difference := describe_difference(names, dataset.class_names)):
        return
    is_own = weights is not None and (str(weights).endswith(".keras") or labels_file(weights).is_file())
    if is_own or sorted(names) == sorted(dataset.class_names):
        can_edit = is_own and "://" not in str(weights)  # of remote weights only the file itself is read
        edit = f"; if only the names differ, write those of the data into {labels_file(weights)}" if can_edit else ""
        raise ValueError(
            f"{role} {weights or 'the model to start from'}, whose classes (there) are not those of {dataset.name!r} "
            f"(here): {difference}. Use data with the model's classes, or {fix}{edit}."
        )


def check_class_count(dataset: ImageDataset, num_classes: int):
    """Raises ValueError unless a model has as many outputs as there are classes."""
    if (count := len(dataset.class_names)) == num_classes:
        return
    part = " If these are some of the model's classes, see docs/data.md, A part of a model's classes."
    raise ValueError(
        f"{dataset.name!r} has {count} classes, but the model has {num_classes or 'no head'}. Fine-tune it on "
        f"this data first.{part if count < num_classes else ''}"
    )


def check_several_classes(dataset: ImageDataset):
    """Raises ValueError for a single class; of several labels per image, one is a question of yes and no."""
    if not dataset.multi_label and len(dataset.class_names) == 1:
        raise ValueError(
            f"{dataset.name!r} has one class, {dataset.class_names[0]!r}: any model is right. Add other classes."
        )


def check_labels(dataset: ImageDataset, split: str):
    """Raises ValueError if the first image of a split has no label; TensorFlow Datasets has -1 for unpublished ones."""
    if any((np.asarray(label) < 0).any() for *_, label in dataset.read(split).take(1).as_numpy_iterator()):
        raise unlabeled(dataset, split)


def unlabeled(dataset: ImageDataset, split: str) -> ValueError:
    """The error for a split whose labels are not public, such as the test split of ImageNet."""
    return ValueError(
        f"The images of {split!r} of {dataset.name!r} have no labels to train or evaluate on. Choose another split, "
        "such as 'validation'."
    )
