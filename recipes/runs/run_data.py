"""The data of a run: opened, counted, and checked against the recipe.

`RunData` is made once; whatever needs a number of images or of classes asks it.
"""

import hashlib
import logging
import os
from collections.abc import Iterable
from functools import cached_property, partial

import numpy as np

from keras_vit.messages import first_names
from keras_vit.recipes.data import ImageDataset, count_training_images, open_dataset
from keras_vit.recipes.data.arrays import read_arrays
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.model_classes import (
    MOST_READ,
    check_labels,
    check_several_classes,
    class_counts,
    labels_are_cheap,
)
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.checks import check_length, check_validations
from keras_vit.recipes.recipe.errors import RecipeError, check_all


class RunData:
    """The dataset of a recipe and what is counted in it, each when it is first asked for.

    Attributes:
        splits: The splits that the recipe uses, by field.
        class_names: Names of the classes, in the order of the outputs; none for training without labels.
    """

    def __init__(self, recipe: Recipe, dataset: ImageDataset | None = None):
        self.recipe = recipe
        self.dataset = open_dataset(recipe.data) if dataset is None else dataset
        fields = ["train_split", *(["validation_split", "test_split"] if recipe.has_labels else [])]
        self.splits = {field: split for field in fields if (split := getattr(recipe.data, field))}
        self.class_names = self.dataset.class_names if recipe.has_labels else ()
        self._class_counts: dict[str, np.ndarray] = {}

    @cached_property
    def images(self) -> dict[str, int]:
        """Number of images in each split; in the training split, those that `labels_per_class` selects."""
        counts = {split: count_nonempty(self.dataset, split) for split in self.splits.values()}
        return {**counts, self.recipe.data.train_split: self.training_images}

    @cached_property
    def training_images(self) -> int:
        """Number of images that are trained on."""
        return count_training_images(self.recipe.data, self.dataset, self.recipe.data.train_split)

    @cached_property
    def total_steps(self) -> int:
        """Length of the run: `total_steps` of the recipe, or those of `total_epochs`."""
        recipe = self.recipe
        if recipe.total_steps is not None:
            return recipe.total_steps
        images = self.images[recipe.data.train_split]
        return round(recipe.total_epochs * images / recipe.data.batch_size)  # type: ignore[operator] # see check_plan

    @cached_property
    def files(self) -> str:
        """A hash of names, sizes and labels of the images of a local folder; "" for other or more images."""
        folder = os.path.expanduser(self.dataset.name.partition(":")[2])
        if not self.dataset.stores_paths or "://" in folder or sum(self.images.values()) > MOST_READ:
            return ""
        digest = hashlib.sha256()
        for split in self.images:
            for paths, labels in read_arrays(self.dataset, split, lambda name, path, label: (name, label)):
                for path, label in zip(paths, labels):
                    file = path.decode()
                    known = os.path.relpath(file, folder), os.path.getsize(file) if os.path.isfile(file) else None
                    digest.update(repr((*known, label.tolist())).encode())
        return digest.hexdigest()

    def class_counts(self, split: str) -> np.ndarray:
        """(C,) int64: the number of images of each class in a split."""
        if split not in self._class_counts:
            self._class_counts[split] = class_counts(self.dataset, split)
        return self._class_counts[split]

    def check(self):
        """Checks splits, labels and number of images against the recipe, and reports all that does not fit.

        There must be at least `batch_size` training images, so that no image is drawn twice for a batch. Evaluation
        splits may be smaller.
        """
        recipe, total_steps = self.recipe, self.total_steps
        check_all(
            lambda: check_length(recipe, total_steps),
            lambda: check_validations(recipe, total_steps),
            *([self._check_loss] if recipe.has_labels else []),
            *(partial(self._check_split, field, split) for field, split in self.splits.items()),
        )
        train, *others = splits = list(self.splits.values())
        if labels_are_cheap(self.dataset, splits):
            self.check_trained_classes(train, set(others) - {train})

    def _check_loss(self):
        recipe, name = self.recipe, self.dataset.name
        if not self.dataset.multi_label:
            if recipe.loss == "softmax":
                check_several_classes(self.dataset)
            return
        if recipe.loss == "softmax":
            raise RecipeError(
                f"Images of {name!r} have any number of labels, but the softmax is for one each.",
                {"loss": "softmax"},
                {"loss": "sigmoid"},
            )
        if recipe.class_weight:
            raise RecipeError(
                f"Weights of classes are for one label per image, but images of {name!r} have any number.",
                {"class_weight": recipe.class_weight},
                {"class_weight": None},
            )
        if recipe.has_teacher:
            raise ValueError(
                f"A teacher's probabilities add up to 1, but images of {name!r} have any number of labels. Train "
                "without a teacher."
            )

    def _check_split(self, field, split):
        dataset, train_split = self.dataset, self.recipe.data.train_split
        try:
            count_nonempty(dataset, split)
        except ValueError as error:
            filled = [name for name, count in dataset.splits.items() if count and name != train_split]
            others = [None] if field == "validation_split" else filled
            raise RecipeError(
                str(error), {f"data.{field}": split}, [{f"data.{field}": name} for name in others[:3]]
            ) from error
        if self.recipe.has_labels:
            check_labels(dataset, split)
        if field == "train_split":
            self._check_batch()

    def _check_batch(self):
        data, dataset, classes = self.recipe.data, self.dataset, len(self.dataset.class_names)
        total = count_nonempty(dataset, data.train_split)
        if data.labels_per_class and data.labels_per_class * classes > total:
            raise RecipeError(
                f"The split {data.train_split!r} of {data.dataset!r} has only {total:,} images of {classes:,} classes.",
                {"data.labels_per_class": data.labels_per_class},
                {"data.labels_per_class": max(1, total // classes)},
            )
        if self.training_images < data.batch_size:
            raise RecipeError(
                f"A batch cannot be larger than the {self.training_images:,} training images of {data.dataset!r}.",
                {"data.batch_size": data.batch_size},
                {"data.batch_size": self.training_images},
            )

    def check_trained_classes(self, train_split: str, splits: Iterable[str]):
        """Warns of classes of evaluation splits that the training split lacks, as parts of sorted data do.

        Raises ValueError if more than half of the labels of a split are of such classes.
        """
        is_trained, dataset = self.class_counts(train_split) > 0, self.dataset
        for split in splits:
            counts = self.class_counts(split)
            missing = np.where(is_trained, 0, counts)
            if not missing.any():
                continue
            names = first_names([dataset.class_names[i] for i in np.flatnonzero(missing)])
            text = (
                f"{missing.sum():,} of {counts.sum():,} labels of {split!r} of {dataset.name!r} are of classes without "
                f"an image in {train_split!r}, which are never predicted: {names}."
            )
            if 2 * missing.sum() > counts.sum():
                raise ValueError(
                    f"{text} Choose splits with images of all classes; parts of a split, such as 'train[:80%]', "
                    "require images in random order, which keras-vit prepare writes."
                )
            logging.getLogger(__name__).warning(text)
