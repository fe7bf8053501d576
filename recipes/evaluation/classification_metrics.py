"""Accuracy, calibration and per-class metrics of a classifier's logits, in NumPy. B batch, C classes.

Memory is O(C), never O(images x C), so ImageNet-21k's 21,843 classes are no problem.
"""

from collections import Counter

import numpy as np
from scipy.special import expit

BINS = 15
MOST_CLASSES = 1_000  # of a confusion matrix, which has as many rows and columns


class ClassificationMetrics:
    """Metrics accumulated over batches of logits and labels. Every image counts once.

    Labels are integers (B,), or multi-hot (B, C) with a positive number for each correct class. With several correct
    classes the top-1 prediction is right if it is one of them, and images without a correct class do not count (ReaL:
    Beyer et al., arXiv 2006.07159, and google-research/reassessed-imagenet; ObjectNet). Ties are broken as by argmax:
    the first class wins.

    Args:
        num_classes: C.
        activation: "softmax", or "sigmoid": the probability of a class is then its own sigmoid, as `output_activation`.
    """

    def __init__(self, num_classes: int, activation: str = "softmax"):
        self.num_classes = num_classes
        self.activation = activation
        self.images = self.counted = self.top1 = self.top5 = 0
        self.log_likelihood = 0.0
        self.bins = np.zeros((BINS, 3))  # images, sum of confidences, correct predictions
        self.class_counts = np.zeros((num_classes, 2), "int64")  # images, correct predictions
        self.predictions = np.zeros(num_classes, "int64")
        self.confusions: Counter[tuple[int, int]] = Counter()  # (correct class, predicted class)

    def update(self, logits, labels):
        """Adds a batch: (B, C) logits, and labels (B,) or (B, C).

        Raises:
            ValueError: Shapes do not match, labels are out of range, or logits are not finite.
        """
        logits = np.asarray(logits, "float64")
        correct = self._multi_hot(logits, np.asarray(labels))  # (B, C)
        labeled = correct.any(axis=1)
        self.images += len(logits)
        self.counted += int(labeled.sum())
        logits, correct = logits[labeled], correct[labeled]
        if not np.isfinite(logits).all():
            raise ValueError("The model's outputs contain NaN or infinity: the weights or the images are corrupt.")
        ranks = _ranks(logits, correct)
        self.top1 += int((ranks < 1).sum())
        self.top5 += int((ranks < 5).sum())
        largest = logits.max(axis=1)
        normalizer = np.exp(logits - largest[:, None]).sum(axis=1)  # of the softmax, stable
        self._update_likelihood(logits, correct, largest + np.log(normalizer))
        sigmoid = self.activation == "sigmoid"
        self._update_bins(expit(largest) if sigmoid else 1.0 / normalizer, ranks < 1)
        self._update_classes(correct, logits.argmax(axis=1), ranks < 1)

    def summary(self) -> dict[str, float]:
        """The metrics of all images.

        "images": number of images; "counted": number of those with a correct class; "top1" and, with more than 5
        classes, "top5": accuracy in [0, 1]; with a softmax "negative_log_likelihood": mean of -log of the probability
        of the correct classes, in nats; "calibration_error": expected calibration error, the mean gap between
        confidence and accuracy in 15 bins of equal width, weighted by the number of images (Guo et al., arXiv
        1706.04599, equation 3). With one correct class per image: "balanced_accuracy": mean of the recalls of the
        classes with images; "macro_f1": mean of 2 * correct / (images + predictions) of the classes with either;
        "majority": top-1 accuracy of always predicting the class with the most images.

        Raises:
            ValueError: No image counts.
        """
        if not self.counted:
            raise ValueError(f"None of the {self.images} images has a label, so there is nothing to evaluate.")
        metrics: dict[str, float] = {"images": self.images, "counted": self.counted, "top1": self.top1 / self.counted}
        if self.num_classes > 5:
            metrics["top5"] = self.top5 / self.counted
        _, confidences, correct = self.bins.T
        if self.activation == "softmax":
            metrics["negative_log_likelihood"] = float(-self.log_likelihood / self.counted)
        metrics["calibration_error"] = float(np.abs(confidences - correct).sum() / self.counted)
        images, right = self.class_counts.T
        if images.sum() == self.counted:
            either = images + self.predictions
            metrics["balanced_accuracy"] = float(np.mean(right[images > 0] / images[images > 0]))
            metrics["macro_f1"] = float(np.mean(2 * right[either > 0] / either[either > 0]))
            metrics["majority"] = float(images.max() / self.counted)
        return metrics

    def reliability(self) -> list[dict]:
        """The reliability diagram: one row per bin "above" < confidence <= "to".

        "images": number of images; "confidence" and "accuracy": their means, None for an empty bin.
        """
        rows = []
        for number, (count, confidence, correct) in enumerate(self.bins):
            row = {"above": number / BINS, "to": (number + 1) / BINS, "images": int(count)}
            means = (float(confidence / count), float(correct / count)) if count else (None, None)
            rows.append({**row, "confidence": means[0], "accuracy": means[1]})
        return rows

    def per_class(self, class_names) -> list[dict]:
        """One row per class that has images, in label order.

        "class": its name; "images": number of its images; "accuracy": its recall, the fraction of them predicted right;
        "confused_with": the class most often predicted instead, None if there is none; "confused": how often.
        """
        worst: dict[int, tuple[int, int]] = {}
        for (true, predicted), count in sorted(self.confusions.items()):
            if count > worst.get(true, (0, 0))[1]:
                worst[true] = (predicted, count)
        rows = []
        for number in np.flatnonzero(self.class_counts[:, 0]).tolist():
            count, correct = self.class_counts[number].tolist()
            row = {"class": class_names[number], "images": count, "accuracy": correct / count}
            if number in worst:
                predicted, confused = worst[number]
                rows.append({**row, "confused_with": class_names[predicted], "confused": confused})
            else:
                rows.append({**row, "confused_with": None, "confused": 0})
        return rows

    def confusion_matrix(self) -> np.ndarray | None:
        """(C, C) int64: how many images of class i were predicted as class j, as scikit-learn's.

        None with several correct classes per image, and above 1,000 classes.
        """
        images, right = self.class_counts.T
        if self.num_classes > MOST_CLASSES or images.sum() != self.counted:
            return None
        matrix = np.diag(right)
        for (true, predicted), count in self.confusions.items():
            matrix[true, predicted] = count
        return matrix

    def _multi_hot(self, logits, labels):
        """Labels as booleans, (B, C)."""
        if logits.ndim != 2 or logits.shape[1] != self.num_classes:
            raise ValueError(f"`logits` must have the shape (B, {self.num_classes}). Received: {logits.shape}")
        if labels.shape == logits.shape:
            return labels > 0
        if labels.shape != logits.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"`labels` must be integers ({len(logits)},) or numbers {logits.shape}. Received: {labels.dtype} "
                f"{labels.shape}"
            )
        if labels.size and not 0 <= labels.min() <= labels.max() < self.num_classes:
            raise ValueError(f"Labels must be in [0, {self.num_classes}). Received: {labels.min()} to {labels.max()}")
        return labels[:, None] == np.arange(self.num_classes)

    def _update_likelihood(self, logits, correct, log_normalizer):
        rows, classes = np.nonzero(correct)
        log_sum = np.full(len(logits), -np.inf)  # (B,), over the correct classes
        np.logaddexp.at(log_sum, rows, logits[rows, classes])
        self.log_likelihood += float((log_sum - log_normalizer).sum())

    def _update_bins(self, confidences, is_correct):
        # Bins are open below and closed above: a confidence of 1 belongs to the last.
        bins = np.digitize(confidences, np.arange(1, BINS) / BINS, right=True)
        for column, values in enumerate((np.ones_like(confidences), confidences, is_correct)):
            self.bins[:, column] += np.bincount(bins, values, BINS)

    def _update_classes(self, correct, predicted, is_correct):
        rows, classes = np.nonzero(correct)
        np.add.at(self.predictions, predicted, 1)
        np.add.at(self.class_counts, (classes, 0), 1)
        np.add.at(self.class_counts, (classes, 1), is_correct[rows])
        wrong = ~is_correct[rows]
        self.confusions.update(zip(classes[wrong].tolist(), predicted[rows[wrong]].tolist()))


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
        return {
            "images": len(labels),
            "counted": int(labels.any(axis=1).sum()),
            "mean_average_precision": float(np.nanmean(self._average_precisions())),
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
        """(C,) numbers in [0, 1]; NaN for a class that no image has."""
        from sklearn.metrics import average_precision_score

        columns = zip(np.concatenate(self.labels).T, np.concatenate(self.logits).T)
        return np.array([average_precision_score(*column) if column[0].any() else np.nan for column in columns])


def _ranks(logits, correct):
    """Rank of the best correct class, (B,): 0 if it is the prediction."""
    best = np.where(correct, logits, -np.inf).argmax(axis=1)[:, None]  # (B, 1)
    value = np.take_along_axis(logits, best, axis=1)  # (B, 1)
    earlier = np.arange(logits.shape[1]) < best  # (B, C)
    return ((logits > value) | ((logits == value) & earlier)).sum(axis=1)
