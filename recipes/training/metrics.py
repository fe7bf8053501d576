"""Metrics of classifiers in `fit` and `evaluate`. B batch, C classes."""

import math

import keras
from keras import ops

from keras_vit.recipes.training.losses import dense_labels

BINS = 8192
# Bins have equal widths of asinh(logit / 0.01): 0.3 % of a logit, 3e-5 around 0, where those of a model that has hardly
# been trained are; all logits beyond the largest are in the last.
LINEAR_RANGE, LARGEST_LOGIT = 0.01, 1000.0


@keras.saving.register_keras_serializable(package="keras_vit")
class TopK(keras.metrics.Mean):
    """Weighted top-k accuracy, in [0, 1]: the fraction of images with a correct class among the k largest logits.

    The correct classes are those with an image's largest label: the label itself for (B,) integers; for (B, C) floats,
    the class with the larger fraction after mixup, or each of several. Images without a label (all zeros, as some of
    ReaL, or an integer below 0) do not count. Among equal logits, the first class wins. An image with NaN or infinity
    among its logits is never right. Pass it in `weighted_metrics`, so that images of weight 0 do not count.

    What the sums of an epoch lose by rounding is added to the next batch (Kahan's compensated summation).
    """

    def __init__(self, k=1, name="top", dtype=None):
        super().__init__(name=name, dtype=dtype or "float32")  # not Keras's, maybe float16, in which 2049 is 2048
        self.k = k
        self.excess = [self.add_variable((), initializer="zeros", name=f"{sum_}_excess") for sum_ in ("total", "count")]

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(y_pred, "float32")  # (B, C)
        targets = dense_labels(ops.convert_to_tensor(y_true), logits)
        largest = ops.max(targets, axis=-1, keepdims=True)  # (B, 1)
        correct = (targets == largest) & (largest > 0)
        labeled = largest[:, 0] > 0  # (B,)
        right = (_rank(logits, correct) < self.k) & labeled & _all_finite(logits)  # (B,)
        counts = ops.cast(labeled, self.dtype)  # (B,)
        weights = counts if sample_weight is None else counts * ops.cast(sample_weight, self.dtype)
        added = (ops.sum(weights * ops.cast(right, self.dtype)), ops.sum(weights))
        for state, excess, value in zip((self.total, self.count), self.excess, added, strict=True):
            before = ops.convert_to_tensor(state)
            value = value - excess
            after = before + value
            excess.assign((after - before) - value)
            state.assign(after)

    def total_weight(self) -> float:
        """The sum of the weights of all images that count so far, on all replicas."""
        return float(ops.sum(self.count))  # not float(self.count): operations alone add the parts of the replicas

    def get_config(self):
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable(package="keras_vit")
class MeanAveragePrecision(keras.metrics.Metric):
    """Mean average precision of multi-label images, in [0, 1], over the classes that have an image.

    Counted in 8,192 bins of the logits from -1,000 to 1,000, fine around 0 and wider outside, whose counts can be added
    over batches and replicas: equal to scikit-learn's average_precision_score of logits rounded to bins.
    `evaluate_classifier` computes it exactly. An image with NaN or infinity among its logits comes last. Pass it in
    `weighted_metrics`.
    """

    def __init__(self, num_classes, name="mean_average_precision", dtype=None):
        super().__init__(name=name, dtype=dtype or "float32")
        self.num_classes = num_classes
        shape = {"shape": (num_classes, BINS), "initializer": "zeros"}
        self.correct = self.add_variable(**shape, name="correct")
        self.others = self.add_variable(**shape, name="others")

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(y_pred, "float32")  # (B, C)
        weights = ops.ones_like(logits)
        if sample_weight is not None:
            weights *= ops.cast(sample_weight, "float32")[:, None]
        finite = _all_finite(logits)[:, None]
        scaled = ops.arcsinh(ops.where(finite, logits, -LARGEST_LOGIT) / LINEAR_RANGE)
        bins = ops.floor((scaled / math.asinh(LARGEST_LOGIT / LINEAR_RANGE) + 1.0) * (BINS / 2))
        bins = ops.cast(ops.clip(bins, 0, BINS - 1), "int32") + BINS * ops.arange(self.num_classes, dtype="int32")
        targets = ops.cast(dense_labels(ops.convert_to_tensor(y_true), logits) > 0, "float32")
        for state, counted in ((self.correct, targets), (self.others, 1.0 - targets)):
            counts = ops.segment_sum(
                ops.reshape(weights * counted, (-1,)), ops.reshape(bins, (-1,)), self.num_classes * BINS
            )
            state.assign_add(ops.cast(ops.reshape(counts, (self.num_classes, BINS)), state.dtype))

    def result(self):
        correct, others = (ops.flip(ops.convert_to_tensor(state), axis=1) for state in (self.correct, self.others))
        hits, total = ops.cumsum(correct, axis=1), ops.cumsum(correct + others, axis=1)
        precision = hits / ops.where(total > 0, total, 1.0)  # of the images in this bin or a higher one
        images = ops.sum(correct, axis=1)  # (C,)
        average = ops.sum(correct * precision, axis=1) / ops.where(images > 0, images, 1.0)
        return ops.sum(average) / ops.maximum(ops.sum(ops.cast(images > 0, average.dtype)), 1.0)

    def total_weight(self) -> float:
        """The sum of the weights of all images so far, on all replicas."""
        return float(ops.sum(self.correct) + ops.sum(self.others)) / self.num_classes

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


def training_metrics(num_classes: int, multi_label: bool = False) -> list[keras.metrics.Metric]:
    """`weighted_metrics` for `compile`; call it in the scope.

    "top1"; with more than 5 classes, "top5"; with several labels per image, "mean_average_precision".
    """
    metrics: list[keras.metrics.Metric] = [TopK(1, name="top1")]
    if num_classes > 5:
        metrics.append(TopK(5, name="top5"))
    return [*metrics, MeanAveragePrecision(num_classes)] if multi_label else metrics


def _rank(logits, correct):
    """Number of classes before the correct class with the largest logit, (B,): 0 if that is the largest of all."""
    best = ops.argmax(ops.where(correct, logits, -float("inf")), axis=-1)[:, None]  # (B, 1)
    value = ops.take_along_axis(logits, best, axis=-1)  # (B, 1)
    earlier = ops.arange(logits.shape[-1], dtype="int32") < ops.cast(best, "int32")  # (B, C)
    before = (logits > value) | ((logits == value) & earlier)
    return ops.sum(ops.cast(before, "int32"), axis=-1)


def _all_finite(logits):
    """Whether all logits of an image are finite, (B,).

    Comparisons cannot tell: in a graph, TensorFlow replaces `not (a <= b)` by `a > b`, which differs for NaN.
    """
    return ops.all(ops.isfinite(logits), axis=-1)
