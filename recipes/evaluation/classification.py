"""How good a classifier's logits are, in NumPy, batch by batch. B batch, C classes.

Nothing grows with images times classes, so ImageNet-21k's 21,843 classes need no more memory than CIFAR's 10.
"""

from collections import Counter

import numpy as np

BINS = 15


class Evaluation:
    """Counts over batches of logits and labels; every image that is given counts once.

    Labels are numbers (B,), or (B, C) with a positive number for each right class: the top-1 of such an image is right
    if it is one of them (ReaL: Beyer et al., arXiv 2006.07159, and google-research/reassessed-imagenet; ObjectNet), and
    an image without a right class does not count. Of equal logits the first class wins, as in argmax.

    Args:
        num_classes: Their number, C.
    """

    def __init__(self, num_classes: int):
        self.num_classes = num_classes
        self.images = self.counted = self.top1 = self.top5 = 0
        self.log_likelihood = 0.0
        self.bins = np.zeros((BINS, 3))  # images, sum of confidences, right ones
        self.class_counts = np.zeros((num_classes, 2), "int64")  # images, right ones
        self.confusions = Counter()  # of (right class, class that was taken instead)

    def update(self, logits, labels):
        """Adds a batch: (B, C) logits, and labels (B,) or (B, C).

        Raises:
            ValueError: Shapes that do not fit, numbers that are no class, or logits that are not finite.
        """
        logits = np.asarray(logits, "float64")
        right = self._right_classes(logits, np.asarray(labels))  # (B, C)
        labeled = right.any(axis=1)
        self.images += len(logits)
        self.counted += int(labeled.sum())
        logits, right = logits[labeled], right[labeled]
        if not np.isfinite(logits).all():
            raise ValueError("The model's outputs hold NaN or infinite values: the weights or the images are broken.")
        ranks = _ranks(logits, right)
        self.top1 += int((ranks < 1).sum())
        self.top5 += int((ranks < 5).sum())
        largest = logits.max(axis=1)
        total = np.exp(logits - largest[:, None]).sum(axis=1)  # of exponentials, 1 at the likeliest class
        self._add_likelihood(logits, right, largest + np.log(total))
        self._add_confidences(1.0 / total, ranks < 1)
        self._add_classes(right, logits.argmax(axis=1), ranks < 1)

    def summary(self) -> dict:
        """The numbers for the whole set, as plain values.

        "images" given and "counted" ones; "top1" and, of more than 5 classes, "top5" in [0, 1];
        "negative_log_likelihood", the mean of -log of the softmax of the right classes, in nats; "calibration_error",
        the expected one: the mean distance between confidence and accuracy in 15 bins of equal width, weighted by
        their images (Guo et al., arXiv 1706.04599, equation 3).

        Raises:
            ValueError: No image counts.
        """
        if not self.counted:
            raise ValueError(f"None of the {self.images} images has a label, so there is nothing to evaluate.")
        found = {"images": self.images, "counted": self.counted, "top1": self.top1 / self.counted}
        if self.num_classes > 5:
            found["top5"] = self.top5 / self.counted
        _, confidences, right = self.bins.T
        found["negative_log_likelihood"] = float(-self.log_likelihood / self.counted)
        found["calibration_error"] = float(np.abs(confidences - right).sum() / self.counted)
        return found

    def reliability(self) -> list[dict]:
        """For each bin "above" < confidence <= "to": its "images", mean "confidence" and "accuracy" (None: empty)."""
        rows = []
        for number, (count, confidence, right) in enumerate(self.bins):
            row = {"above": number / BINS, "to": (number + 1) / BINS, "images": int(count)}
            means = (float(confidence / count), float(right / count)) if count else (None, None)
            rows.append({**row, "confidence": means[0], "accuracy": means[1]})
        return rows

    def per_class(self, names) -> list[dict]:
        """For each class that has images, in the order of the numbers: where a model goes wrong.

        "class" is its name, "images" those whose right class it is, "accuracy" how many of these are right,
        "confused_with" the class most often taken instead, None if never, and "confused" how often.
        """
        worst = {}
        for (true, taken), count in sorted(self.confusions.items()):
            if count > worst.get(true, (0, 0))[1]:
                worst[true] = (taken, count)
        rows = []
        for number in np.flatnonzero(self.class_counts[:, 0]).tolist():
            count, right = self.class_counts[number].tolist()
            taken, confused = worst.get(number, (None, 0))
            row = {"class": names[number], "images": count, "accuracy": right / count}
            rows.append({**row, "confused_with": None if taken is None else names[taken], "confused": confused})
        return rows

    def _right_classes(self, logits, labels):
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

    def _add_likelihood(self, logits, right, of_all):
        rows, classes = np.nonzero(right)
        of_right = np.full(len(logits), -np.inf)  # (B,)
        np.logaddexp.at(of_right, rows, logits[rows, classes])
        self.log_likelihood += float((of_right - of_all).sum())

    def _add_confidences(self, confidences, is_right):
        # Bins are open below and closed above: a confidence of 1 belongs to the last.
        places = np.digitize(confidences, np.arange(1, BINS) / BINS, right=True)
        for column, values in enumerate((np.ones_like(confidences), confidences, is_right)):
            self.bins[:, column] += np.bincount(places, values, BINS)

    def _add_classes(self, right, taken, is_right):
        rows, classes = np.nonzero(right)
        np.add.at(self.class_counts, (classes, 0), 1)
        np.add.at(self.class_counts, (classes, 1), is_right[rows])
        wrong = ~is_right[rows]
        self.confusions.update(zip(classes[wrong].tolist(), taken[rows[wrong]].tolist()))


def vtab_means(accuracies: dict[str, float], groups: dict[str, str]) -> dict[str, float]:
    """VTAB's scores: the mean accuracy of each group of tasks, and of all tasks as "all" (arXiv 1910.04867).

    "all" is the mean over the tasks, not over the groups, which have 7, 4 and 8 of the 19.

    Args:
        accuracies: By task.
        groups: The group, "natural", "specialized" or "structured", of each task.

    Raises:
        ValueError: The tasks differ; a mean of some would not compare.
    """
    if accuracies.keys() != groups.keys():
        missing, unknown = sorted(groups.keys() - accuracies.keys()), sorted(accuracies.keys() - groups.keys())
        raise ValueError(
            f"The mean needs the accuracy of every task. Missing: {', '.join(missing) or 'none'}. Unknown: "
            f"{', '.join(unknown) or 'none'}."
        )
    names = dict.fromkeys(groups.values())
    means = {name: float(np.mean([accuracies[task] for task in groups if groups[task] == name])) for name in names}
    return {**means, "all": float(np.mean(list(accuracies.values())))}


def _ranks(logits, right):
    """How many classes come before the likeliest right one, (B,): 0 where it is the likeliest of all."""
    best = np.where(right, logits, -np.inf).argmax(axis=1)[:, None]  # (B, 1)
    value = np.take_along_axis(logits, best, axis=1)  # (B, 1)
    earlier = np.arange(logits.shape[1]) < best  # (B, C)
    return ((logits > value) | ((logits == value) & earlier)).sum(axis=1)
