"""What `fit` and `evaluate` report of a classifier. B batch, C classes."""

import keras
from keras import ops

from keras_vit.recipes.training.losses import dense_labels


@keras.saving.register_keras_serializable(package="keras_vit")
class TopK(keras.metrics.Mean):
    """Share of the images that have a right class among the k likeliest, weighted.

    Right are an image's classes of the largest label: its number's, of (B,) labels; the one that has the larger share
    after mixup, or each of several, of (B, C) labels. An image without a label, all zeros as some of ReaL or a number
    below 0, does not count. Of equal logits the first class wins, and NaN is never right. Pass it as one of
    `weighted_metrics`, so that images of weight 0 do not count.

    Args:
        k: At least 1.
    """

    def __init__(self, k=1, name="top", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.k = k

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(y_pred, "float32")  # (B, C)
        shares = dense_labels(ops.convert_to_tensor(y_true), logits)
        largest = ops.max(shares, axis=-1, keepdims=True)  # (B, 1)
        right = (shares == largest) & (largest > 0)
        labeled = largest[:, 0] > 0  # (B,)
        found = ops.cast((_rank(logits, right) < self.k) & labeled, self.dtype)  # (B,)
        counts = ops.cast(labeled, self.dtype)  # (B,)
        sample_weight = counts if sample_weight is None else counts * ops.cast(sample_weight, self.dtype)
        return super().update_state(found, sample_weight)

    def get_config(self):
        return {**super().get_config(), "k": self.k}


def training_metrics(num_classes: int) -> list[keras.metrics.Metric]:
    """`weighted_metrics` for `compile`: "top1" and, of more than 5 classes, "top5"; make them in the scope."""
    return [TopK(1, name="top1")] + ([TopK(5, name="top5")] if num_classes > 5 else [])


def _rank(logits, right):
    """How many classes come before the likeliest right one, (B,): 0 where it is the likeliest of all."""
    best = ops.argmax(ops.where(right, logits, -float("inf")), axis=-1)[:, None]  # (B, 1)
    value = ops.take_along_axis(logits, best, axis=-1)  # (B, 1)
    earlier = ops.arange(logits.shape[-1]) < ops.cast(best, "int32")  # (B, C)
    before = ops.logical_not(logits <= value) | ((logits == value) & earlier)  # all, of NaN
    return ops.sum(ops.cast(before, "int32"), axis=-1)
