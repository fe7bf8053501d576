"""Few-shot linear evaluation of frozen features (section 4.1 of the paper). n images, D width, C classes."""

from dataclasses import dataclass, field

import numpy as np

from keras_vit.recipes.data import class_names, open_dataset
from keras_vit.recipes.data.examples import read_labels
from keras_vit.recipes.evaluation.features import features_of
from keras_vit.recipes.recipe import Data

# big_vision, evaluators/fewshot_lsr.py: a constant feature so large that the penalty hardly holds the bias.
BIAS = 100.0


@dataclass(frozen=True)
class FewShot:
    """Regularized least squares from features of a few images a class to targets in {-1, 1}.

    Args:
        data: `dataset`, `data_dir`, `train_split` and `test_split` are used; images are prepared as the
            weights want them.
        shots: Images a class.
        seeds: Of the choice of images; the accuracies of all are kept.
        l2: Penalty on the weights, 1024 in big_vision. The paper does not name its own.
        batch_size: Images at a time.
    """

    data: Data = field(default_factory=Data)
    shots: tuple[int, ...] = (1, 5, 10, 25)
    seeds: tuple[int, ...] = (0, 1, 2)
    l2: float = 2.0**10
    batch_size: int = 64


def few_shot(model, recipe: FewShot, verbose: bool = False) -> dict[int, list[float]]:
    """Accuracy in [0, 1] by number of shots, one for each seed.

    Args:
        model: Anything with `features` and `preprocess`, as all models of keras_vit.
        recipe: What to evaluate on.
        verbose: Show progress.

    Raises:
        ValueError: There are no shots or seeds, a class has fewer images than the most shots, a split is missing, or
            a chosen image is corrupt.
    """
    if not recipe.seeds or not recipe.shots or min(recipe.shots) < 1 or recipe.l2 <= 0:
        raise ValueError(
            "Few-shot evaluation needs seeds, shots of at least 1, and an l2 above 0. Received: "
            f"seeds={recipe.seeds}, shots={recipe.shots}, l2={recipe.l2}"
        )
    builder = open_dataset(recipe.data)
    classes = len(class_names(builder))
    labels = read_labels(builder, recipe.data.train_split)
    chosen = {seed: choose_shots(labels, max(recipe.shots), classes, seed) for seed in recipe.seeds}
    needed = np.unique(np.concatenate([number.ravel() for number in chosen.values()]))
    common = {"batch_size": recipe.batch_size, "verbose": verbose}
    # None may be corrupt: the others would get each other's labels.
    train, _ = features_of(model, builder, recipe.data.train_split, numbers=needed, max_corrupt=0, **common)
    test, answers = features_of(model, builder, recipe.data.test_split, **common)
    place = {number: i for i, number in enumerate(needed)}
    accuracies = {}
    for shots in recipe.shots:
        accuracies[shots] = []
        for numbers in chosen.values():
            used = numbers[:, :shots].ravel()
            of_used = train[[place[number] for number in used]]
            scores = least_squares(of_used, labels[used], test, classes, recipe.l2)
            accuracies[shots].append(float(np.mean(scores.argmax(axis=1) == answers)))
    return accuracies


def choose_shots(labels, shots: int, classes: int, seed: int) -> np.ndarray:
    """Numbers of the images chosen of each class, (C, shots); fewer shots are the first columns."""
    random, chosen = np.random.default_rng(seed), []
    for number in range(classes):
        members = np.flatnonzero(labels == number)
        if len(members) < shots:
            raise ValueError(f"{shots} shots, but class number {number} has {len(members)} images. Take fewer shots.")
        chosen.append(random.choice(members, shots, replace=False))
    return np.stack(chosen)


def least_squares(train, labels, test, classes: int, l2: float) -> np.ndarray:
    """Scores of the classes for the test features, by ridge regression from the training features to {-1, 1}.

    Each dimension is standardized by mean and deviation of the training features, (x - mean) / (deviation + 1e-5), and
    a constant feature of 100 is added, as in big_vision. Then, in closed form, weights = (X^T X + l2 I)^-1 X^T Y, or
    X^T (X X^T + l2 I)^-1 Y where there are fewer images than dimensions: the same with a smaller matrix.

    Args:
        train: (n, D).
        labels: (n,) in [0, C).
        test: (m, D).
        classes: Their number, C.
        l2: Penalty, above 0.

    Returns:
        (m, C); the largest is the prediction.
    """
    train, test = (np.asarray(x, "float64") for x in (train, test))
    mean, deviation = train.mean(axis=0), train.std(axis=0) + 1e-5
    train, test = (np.pad((x - mean) / deviation, ((0, 0), (0, 1)), constant_values=BIAS) for x in (train, test))
    targets = 2.0 * np.eye(classes)[labels] - 1.0  # (n, C)
    images, width = train.shape
    if images < width:
        return test @ (train.T @ np.linalg.solve(train @ train.T + l2 * np.eye(images), targets))
    return test @ np.linalg.solve(train.T @ train + l2 * np.eye(width), train.T @ targets)
