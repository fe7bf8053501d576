"""Metrics of classifiers in `fit` and `evaluate`. B batch, C classes."""

import keras
from keras import ops

from keras_vit.recipes.training.losses import dense_labels


@keras.saving.register_keras_serializable(package="keras_vit")
class TopK(keras.metrics.Mean):
    """Weighted top-k accuracy, in [0, 1]: the fraction of images with a correct class among the k largest logits.

    The correct classes are those with an image's largest label: the label itself for (B,) integers; for (B, C) floats,
    the class with the larger fraction after mixup, or each of several. Images without a label (all zeros, as some of
    ReaL, or an integer below 0) do not count. Among equal logits, the first class wins; NaN is never correct. Pass it
    in `weighted_metrics`, so that images of weight 0 do not count.

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
        found = ops.cast((_rank(logits, correct) < self.k) & labeled, self.dtype)  # (B,)
        counts = ops.cast(labeled, self.dtype)  # (B,)
        sample_weight = counts if sample_weight is None else counts * ops.cast(sample_weight, self.dtype)
        return super().update_state(found, sample_weight)

    def get_config(self):
        return {**super().get_config(), "k": self.k}


def training_metrics(num_classes: int) -> list[keras.metrics.Metric]:
    """`weighted_metrics` for `compile`: "top1" and, with more than 5 classes, "top5". Call it in the scope."""
    return [TopK(1, name="top1")] + ([TopK(5, name="top5")] if num_classes > 5 else [])


def _rank(logits, correct):
    """Number of classes before the correct class with the largest logit, (B,): 0 if that is the largest of all."""
    best = ops.argmax(ops.where(correct, logits, -float("inf")), axis=-1)[:, None]  # (B, 1)
    value = ops.take_along_axis(logits, best, axis=-1)  # (B, 1)
    earlier = ops.arange(logits.shape[-1]) < ops.cast(best, "int32")  # (B, C)
    before = ops.logical_not(logits <= value) | ((logits == value) & earlier)  # all classes, for NaN
    return ops.sum(ops.cast(before, "int32"), axis=-1)
