"""Images that are possibly mislabeled: confident learning (Northcutt et al., arXiv 1911.00068, section 3.1)."""

import numpy as np

from keras_vit.recipes.evaluation.predictions import Predictions


def find_label_issues(predictions: Predictions) -> np.ndarray:
    """The images whose label is possibly wrong: their rows, that with the least likely label first.

    A class is likely for an image whose probability of it is at least the mean of the images with that label. Where a
    class other than the label is the most likely one of them, and the prediction is not the label, the label is in
    doubt: the off-diagonal of the paper's confident joint, without images that the model agrees with. The probabilities
    must be of models that were not trained on these images.

    Args:
        predictions: Of n images with one label each, and C classes; of others nothing is in doubt.

    Returns:
        (k,) int64.
    """
    if not predictions.one_label:
        return np.zeros(0, "int64")
    probabilities, labels = predictions.probabilities.astype("float64"), predictions.correct.argmax(-1)
    counts = predictions.correct.sum(0)
    # Of a class without images nothing is known: it is never likely.
    thresholds = np.where(counts, (probabilities * predictions.correct).sum(0) / np.maximum(counts, 1), np.inf)  # (C,)
    likely = np.where(probabilities >= thresholds - 1e-6, probabilities, -np.inf)  # (n, C)
    suggested = likely.argmax(-1)
    doubtful = (likely.max(-1) > -np.inf) & (suggested != labels) & (predictions.predicted != labels)
    rows = np.flatnonzero(doubtful)
    return rows[np.argsort(probabilities[rows, labels[rows]], kind="stable")]
