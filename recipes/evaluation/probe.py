"""Nearest neighbors and a linear probe on frozen features. n training images, m test images, D width."""

import numpy as np

TEMPERATURE = 0.07
INVERSE_PENALTIES = tuple(10.0**power for power in range(-4, 5))
HELD_OUT_FRACTION = 0.1
MAX_ITERATIONS = 10_000  # with a small penalty, classes that the features do not separate take a few thousand


def knn(train, labels, test, neighbors: int = 20) -> np.ndarray:
    """k-nearest-neighbor classification, weighted by similarity ("Emerging Properties", arXiv 2104.14294, appendix F).

    A neighbor with cosine similarity s has exp(s / 0.07) votes.

    Args:
        train: (n, D) features.
        labels: (n,) integers.
        test: (m, D) features.
        neighbors: Number of neighbors that vote, at most n.

    Returns:
        (m,) predicted labels.

    Raises:
        ValueError: There are fewer training images than neighbors.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if not 1 <= neighbors <= len(train):
        raise ValueError(f"`neighbors` must be between 1 and the {len(train)} training images. Received: {neighbors}")

    def votes(distances):  # (m, neighbors); relative to the nearest neighbor, whose vote does not vanish
        return np.exp((distances.min(axis=1, keepdims=True) - distances) / TEMPERATURE)

    classifier = KNeighborsClassifier(neighbors, weights=votes, algorithm="brute", metric="cosine")
    return classifier.fit(train, labels).predict(test)


def linear_probe(train, labels, test) -> tuple[np.ndarray, float]:
    """Multinomial logistic regression on standardized features, by L-BFGS.

    The penalty is the best of nine, a factor of 10 apart, on a held-out tenth of the training images; then the
    classifier is fitted to all of them, as in CLIP's evaluation (arXiv 2103.00020, appendix A.3).

    Args:
        train: (n, D) features.
        labels: (n,) integers, at least two of each class.
        test: (m, D) features.

    Returns:
        (m,) predicted labels, and the chosen inverse penalty C.

    Raises:
        ValueError: There are too few images or classes for a stratified tenth.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() < 2 or len(labels) * HELD_OUT_FRACTION < len(classes):
        raise ValueError(
            f"A linear probe requires at least 2 classes, 2 images of each, and 10 times as many images as classes. "
            f"Received: {len(labels)} images of {len(classes)} classes, {counts.min()} of the smallest. With so few "
            "images use keras-vit few-shot."
        )
    tenth = StratifiedShuffleSplit(1, test_size=HELD_OUT_FRACTION, random_state=0)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITERATIONS))
    search = GridSearchCV(model, {"logisticregression__C": INVERSE_PENALTIES}, cv=tenth).fit(train, labels)
    return search.predict(test), search.best_params_["logisticregression__C"]
