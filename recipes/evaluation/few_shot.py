"""Few-shot linear evaluation of frozen features (section 4.1 of the paper). n images, D width, C classes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from keras_vit.recipes.data import open_dataset, read_labels
from keras_vit.recipes.data.arrays import check_any, indices_by_class
from keras_vit.recipes.data.image_dataset import count_nonempty
from keras_vit.recipes.data.model_classes import check_labels, check_several_classes
from keras_vit.recipes.evaluation.features import _extract_positions
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import RecipeError

# big_vision, evaluators/fewshot_lsr.py: a constant feature so large that the penalty hardly affects the bias.
BIAS = 100.0


@dataclass(frozen=True)
class FewShot:
    """Regularized least squares from the features of a few images per class to targets in {-1, 1}.

    Images that cannot be decoded are skipped, and named on standard error.

    Args:
        data: `dataset`, `data_dir`, `train_split` and `test_split` are used.
        shots: Numbers of training images per class; a class with fewer contributes those that it has, as in big_vision.
        seeds: Seeds of the choice of images; one accuracy per seed.
        l2: L2 penalty on the weights. 1024 is big_vision's; the paper does not report one.
        batch_size: Number of images at a time.
        resizing: "big_vision" squashes images to 8 / 7 of the model's size and crops the center, such as 224 of
            256 pixels (configs/common_fewshot.py), with the mean and standard deviation of the weights; "weights"
            prepares them as the weights require.

    Raises:
        RecipeError: There are no shots or seeds, or a number of shots or the penalty is not positive.
    """

    data: Data = field(default_factory=Data)
    shots: tuple[int, ...] = (1, 5, 10, 25)
    seeds: tuple[int, ...] = (0, 1, 2)
    l2: float = 2.0**10
    batch_size: int = 64
    resizing: Literal["big_vision", "weights"] = "big_vision"

    def __post_init__(self):
        if not self.shots or min(self.shots) < 1:
            raise RecipeError("Each number of shots must be at least 1.", {"shots": self.shots}, {"shots": (1, 5, 10)})
        if not self.seeds:
            raise RecipeError("There must be at least one seed.", {"seeds": self.seeds}, {"seeds": (0,)})
        if not self.l2 > 0:
            raise RecipeError("The penalty must be above 0.", {"l2": self.l2}, {"l2": 1024.0})


def few_shot(
    model, recipe: FewShot, verbose: bool = False, log: Callable[[str], None] | None = None
) -> dict[int, list[float]]:
    """Top-1 accuracies in [0, 1] by number of shots, one for each seed.

    Args:
        model: Any object with `features`, `preprocess` and `preprocessing`, such as the models of keras_vit; "weights"
            does not use `preprocessing`.
        recipe: Data and settings.
        verbose: Show the progress on standard error.
        log: Called with the numbers of images and with the result of each number of shots; None for no output.

    Raises:
        ValueError: The data has one class, a split is unknown, empty or unlabeled, or none
            of its images can be decoded.
    """
    dataset, data, batch_size = open_dataset(recipe.data), recipe.data, recipe.batch_size
    check_several_classes(dataset)
    if data.test_split is None:
        raise ValueError(
            f"Few-shot accuracy requires test images. Set test_split to one of {', '.join(dataset.splits)}"
        )
    for split in (data.train_split, data.test_split):
        count_nonempty(dataset, split)
        check_labels(dataset, split)
    num_classes = len(dataset.class_names)
    labels = read_labels(dataset, data.train_split)
    draws = [choose_shots(labels, max(recipe.shots), num_classes, seed) for seed in recipe.seeds]
    drawn = np.unique(np.concatenate([indices for draw in draws for indices in draw]))
    extract = partial(_extract_positions, model, dataset, batch_size=batch_size, max_corrupt=1.0, verbose=verbose)
    if recipe.resizing == "big_vision":
        fields = {"resize": "squash", "crop_fraction": 0.875, "interpolation": "bilinear", "antialias": False}
        extract = partial(extract, preprocessing=replace(model.preprocessing, **fields))
    extracted, positions = extract(data.train_split, indices=drawn)
    train = dict(zip(positions.tolist(), extracted))
    corrupt = sorted(set(drawn.tolist()) - train.keys())
    test, positions = extract(data.test_split)
    test_labels = read_labels(dataset, data.test_split)[positions]
    for split, features in ((data.train_split, train), (data.test_split, test)):
        check_any(features, dataset, split)
    if log:
        images = f"{len(labels) - len(corrupt):,} training and {len(test):,} test images"
        log(f"{images} of {data.dataset}, {test.shape[1]} features")
    available = np.bincount(np.delete(labels, corrupt), minlength=num_classes)
    accuracies: dict[int, list[float]] = {}
    for shots in recipe.shots:
        accuracies[shots] = []
        for draw in draws:
            chosen = [index for indices in draw for index in indices[:shots].tolist() if index in train]
            features = np.stack([train[index] for index in chosen])
            scores = least_squares(features, labels[chosen], test, num_classes, recipe.l2)
            accuracies[shots].append(float(np.mean(scores.argmax(axis=1) == test_labels)))
        if log:
            log(_result_line(shots, accuracies[shots], available))
    return accuracies


def choose_shots(labels, shots: int, num_classes: int, seed: int) -> list[np.ndarray]:
    """Indices of at most `shots` images of each class; the first ones are those of fewer shots.

    For images in the same order they are the images that big_vision chooses.
    """
    random = np.random.default_rng(seed)
    return [random.permutation(members)[:shots] for members in indices_by_class(labels, num_classes)]


def _result_line(shots, values, available):
    """Mean and standard deviation for a number of shots, and the images per class where a class has fewer."""
    fewest, most = int(available.min()), int(available.max())
    note = f" ({fewest if fewest == most else f'{fewest} to {most}'} available)" if shots > fewest else ""
    # From `most` on, each seed draws the same images.
    std = f" ± {np.std(values, ddof=1):.2%}" if len(values) > 1 and shots < most else ""
    return f"{shots:>3} per class{note}: {np.mean(values):.2%}{std}"


def least_squares(train, labels, test, num_classes: int, l2: float) -> np.ndarray:
    """Scores of the classes for the test features, by ridge regression from the training features to {-1, 1}.

    As in big_vision, each dimension is standardized by mean and standard deviation of the training features,
    (x - mean) / (std + 1e-5), and a constant feature of 100 is appended. Then, in closed form, weights =
    (X^T X + l2 I)^-1 X^T Y, or, with fewer images than dimensions, the equivalent X^T (X X^T + l2 I)^-1 Y with its
    smaller matrix.

    Args:
        train: (n, D).
        labels: (n,) in [0, C).
        test: (m, D).
        num_classes: C.
        l2: Penalty, above 0.

    Returns:
        (m, C); the largest score is the prediction.
    """
    train, test = (np.asarray(x, "float64") for x in (train, test))
    mean, std = train.mean(axis=0), train.std(axis=0) + 1e-5
    train, test = (np.pad((x - mean) / std, ((0, 0), (0, 1)), constant_values=BIAS) for x in (train, test))
    targets = 2.0 * np.eye(num_classes)[labels] - 1.0  # (n, C)
    images, width = train.shape
    if images < width:
        return test @ (train.T @ np.linalg.solve(train @ train.T + l2 * np.eye(images), targets))
    return test @ np.linalg.solve(train.T @ train + l2 * np.eye(width), train.T @ targets)
