"""Average precision of images with several labels each, in NumPy. B batch, C classes, n images."""

import numpy as np


class MultiLabelMetrics:
    """Mean average precision, accumulated over batches of logits and labels: keeps all (n, C) of them, in 5 bytes each.

    Args:
        num_classes: C.
    """

    def __init__(self, num_classes: int):
        self.num_classes = num_classes
        self.logits: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []

    def update(self, logits, labels):
        """Adds a batch: (B, C) logits, and labels (B, C) with a positive number for each correct class.

        Raises:
            ValueError: Shapes do not match, or logits are not finite.
        """
        logits, labels = np.asarray(logits, "float32"), np.asarray(labels)
        if logits.ndim != 2 or logits.shape[1] != self.num_classes or labels.shape != logits.shape:
            raise ValueError(
                f"`logits` and `labels` must have the shape (B, {self.num_classes}). Received: {logits.shape} and "
                f"{labels.shape}"
            )
        if not np.isfinite(logits).all():
            raise ValueError("The model's outputs contain NaN or infinity: the weights or the images are corrupt.")
        self.logits.append(logits)
        self.labels.append(labels > 0)

    def summary(self) -> dict[str, float]:
        """The metrics of all images.

        "images": number of images; "counted": number of those with a label; "mean_average_precision": mean over the
        classes that have an image.

        Raises:
            ValueError: No image has a label.
        """
        labels = np.concatenate(self.labels) if self.labels else np.zeros((0, self.num_classes), bool)
        if not labels.any():
            raise ValueError(f"None of the {len(labels)} images has a label, so there is nothing to evaluate.")
        found = self._average_precisions()
        return {
            "images": len(labels),
            "counted": int(labels.any(axis=1).sum()),
            "mean_average_precision": float(np.nanmean(found)),
        }

    def per_class(self, class_names) -> list[dict]:
        """One row per class that has images, in label order: "class", "images" and "average_precision"."""
        counts = np.concatenate(self.labels).sum(axis=0)
        precisions = self._average_precisions()
        return [
            {"class": class_names[i], "images": int(counts[i]), "average_precision": float(precisions[i])}
            for i in np.flatnonzero(counts)
        ]

    def _average_precisions(self) -> np.ndarray:
        logits, labels = np.concatenate(self.logits), np.concatenate(self.labels)
        return np.array([average_precision(labels[:, i], logits[:, i]) for i in range(self.num_classes)])


def average_precision(is_correct: np.ndarray, scores: np.ndarray) -> float:
    """sum_k (R_k - R_(k-1)) P_k over the distinct scores, from the highest; equals scikit-learn's.

    P_k and R_k are precision and recall of the images with at least the k-th score.

    Args:
        is_correct: (n,) booleans.
        scores: (n,) numbers.

    Returns:
        A number in [0, 1]; NaN if no image is correct.
    """
    total = is_correct.sum()
    if not total:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, correct = scores[order], np.cumsum(is_correct[order])
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # of each group of equal scores
    return float((np.diff(correct[last], prepend=0) / total * correct[last] / (last + 1)).sum())
