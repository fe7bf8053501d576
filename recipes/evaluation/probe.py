"""How good frozen features are: nearest neighbors and a linear classifier. n m images, D width, C classes."""

import numpy as np

TEMPERATURE = 0.07
STRENGTHS = tuple(10.0**power for power in range(-4, 5))
HELD_OUT = 0.1


def knn(train, labels, test, neighbors: int = 20, temperature: float = TEMPERATURE) -> np.ndarray:
    """Classes by vote of the most similar training images ("Emerging Properties", arXiv 2104.14294, appendix F).

    A neighbor of cosine s has exp(s / temperature) votes.

    Args:
        train: (n, D) features.
        labels: (n,) integers.
        test: (m, D).
        neighbors: How many vote, at most n.
        temperature: Above 0; smaller listens more to the nearest.

    Returns:
        (m,) of the labels.

    Raises:
        ValueError: There are fewer training images than neighbors.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if not 1 <= neighbors <= len(train):
        raise ValueError(f"`neighbors` must be between 1 and the {len(train)} training images. Received: {neighbors}")
    votes = KNeighborsClassifier(
        neighbors, weights=lambda distance: np.exp(-distance / temperature), algorithm="brute", metric="cosine"
    )
    return votes.fit(train, labels).predict(test)


def linear_probe(train, labels, test, seed: int = 0) -> tuple[np.ndarray, float]:
    """Classes by multinomial logistic regression on standardized features, by L-BFGS.

    The penalty is that of nine, a factor of 10 apart, which is best on a tenth of the training images; then it is
    fitted to all of them, as in CLIP's evaluation (arXiv 2103.00020, appendix A.3).

    Args:
        train: (n, D) features.
        labels: (n,) integers, at least two of each class.
        test: (m, D).
        seed: Of the tenth, which has each class by its share.

    Returns:
        (m,) of the labels, and the inverse penalty C that was chosen.

    Raises:
        ValueError: A class has too few images for the tenth to have one of each.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() < 2 or len(labels) * HELD_OUT < len(classes):
        raise ValueError(
            f"A linear probe needs at least 2 classes, 2 images of each and 10 times as many images as classes. "
            f"Received: {len(labels)} of {len(classes)} classes, of one {counts.min()}. For so few: keras-vit few-shot"
        )
    tenth = StratifiedShuffleSplit(1, test_size=HELD_OUT, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(model, {"logisticregression__C": STRENGTHS}, cv=tenth).fit(train, labels)
    return search.predict(test), search.best_params_["logisticregression__C"]
