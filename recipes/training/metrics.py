"""Metrics of classifiers in `fit` and `evaluate`. B batch, C classes."""

import keras
from keras import ops

from keras_vit.recipes.training.losses import dense_labels


@keras.saving.register_keras_serializable(package="keras_vit")
class TopK(keras.metrics.Mean):
    """Weighted top-k accuracy, in [0, 1]: the fraction of images with a correct class among the k largest logits.

    The correct classes are those with an image's largest label: the label itself for (B,) integers; for (B, C) floats,
    the class with the larger fraction after mixup, or each of several. Images without a label (all zeros, as some of
    ReaL, or an integer below 0) do not count. Among equal logits, the first class wins. An image with NaN or infinity
    among its logits is never right. Pass it in `weighted_metrics`, so that images of weight 0 do not count.

    Args:
        k: At least 1.
    """

    def __init__(self, k=1, name="top", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.k = k

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(y_pred, "float32")  # (B, C)
        targets = dense_labels(ops.convert_to_tensor(y_true), logits)
        largest = ops.max(targets, axis=-1, keepdims=True)  # (B, 1)
        correct = (targets == largest) & (largest > 0)
        labeled = largest[:, 0] > 0  # (B,)
        found = (_rank(logits, correct) < self.k) & labeled & _all_finite(logits)  # (B,)
        counts = ops.cast(labeled, self.dtype)  # (B,)
        sample_weight = counts if sample_weight is None else counts * ops.cast(sample_weight, self.dtype)
        return super().update_state(ops.cast(found, self.dtype), sample_weight)

    def get_config(self):
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchAccuracy(keras.metrics.Mean):
    """Accuracy of masked-patch pre-training, in [0, 1]: the fraction of colors whose logit is the largest.

    As `keras.metrics.SparseCategoricalAccuracy`, except that a color with NaN or infinity among its logits is never
    right; Keras takes NaN for class 0.

    Labels: (B, M) or (B, M, 16) integers; logits: with one more axis, of the classes.
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(y_pred, "float32")
        predicted = ops.argmax(logits, axis=-1)
        found = (predicted == ops.cast(y_true, predicted.dtype)) & _all_finite(logits)
        return super().update_state(ops.cast(found, self.dtype), sample_weight)


def training_metrics(num_classes: int) -> list[keras.metrics.Metric]:
    """`weighted_metrics` for `compile`: "top1" and, with more than 5 classes, "top5". Call it in the scope."""
    return [TopK(1, name="top1")] + ([TopK(5, name="top5")] if num_classes > 5 else [])


def _rank(logits, correct):
    """Number of classes before the correct class with the largest logit, (B,): 0 if that is the largest of all."""
    best = ops.argmax(ops.where(correct, logits, -float("inf")), axis=-1)[:, None]  # (B, 1)
    value = ops.take_along_axis(logits, best, axis=-1)  # (B, 1)
    earlier = ops.arange(logits.shape[-1]) < ops.cast(best, "int32")  # (B, C)
    before = (logits > value) | ((logits == value) & earlier)
    return ops.sum(ops.cast(before, "int32"), axis=-1)


def _all_finite(logits):
    """Whether all logits of an image are finite, (B,).

    Comparisons cannot tell: in a graph, TensorFlow replaces `not (a <= b)` by `a > b`, which differs for NaN.
    """
    return ops.all(ops.isfinite(logits), axis=-1)
