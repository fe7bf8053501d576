"""Losses of classifiers, from logits. B batch, C classes.

Labels are integers (B,), or floats (B, C): fractions that sum to 1 after mixup, zeros and ones for multi-label data.
The loss of an integer below 0, an image without a label, is 0.

A new one is a class here, a row of `build_loss`, and a value of `Supervised.loss` of recipes/recipe/__init__.py, which
has the range of its label smoothing. `_check_loss` of recipes/runs/run_data.py refuses the softmax for images with
several labels and for one class.
"""

import keras
from keras import ops

from keras_vit.recipes.recipe import Supervised


@keras.saving.register_keras_serializable(package="keras_vit")
class Softmax(keras.losses.Loss):
    """Cross-entropy of the softmax: -sum over the classes of t log softmax(x), with t = (1 - s) y + s / C.

    Labels: (B,) integers or (B, C) floats. Logits: (B, C). One value per image, then Keras's reduction, the mean.

    Args:
        label_smoothing: s, in [0, 1) (Szegedy et al., arXiv 1512.00567, section 7).
    """

    def __init__(self, label_smoothing=0.0, name="softmax", **kwargs):
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        targets = dense_labels(y_true, y_pred)
        if self.label_smoothing:
            targets = (1.0 - self.label_smoothing) * targets + self.label_smoothing / y_pred.shape[-1]
        loss = -ops.sum(targets * ops.log_softmax(y_pred, axis=-1), axis=-1)  # (B,)
        return _of_labeled(loss, y_true)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="keras_vit")
class Sigmoid(keras.losses.Loss):
    """Binary cross-entropy, summed over the classes: the paper's pre-training on multi-label images.

    -sum over the classes of t log sigmoid(x) + (1 - t) log sigmoid(-x), as google-research/big_vision
    (utils.py, sigmoid_xent), with t = (1 - 2 s) y + s. Labels and logits as for `Softmax`.

    Args:
        label_smoothing: s, in [0, 0.5): the target of a class that is absent, and 1 - s that of one that is present, as
            `onehot(classes, on=1 - s, off=s)` in the preprocessing of big_vision (pp/ops_general.py).
    """

    def __init__(self, label_smoothing=0.0, name="sigmoid", **kwargs):
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        targets = dense_labels(y_true, y_pred)
        if self.label_smoothing:
            targets = (1.0 - 2.0 * self.label_smoothing) * targets + self.label_smoothing
        # Softplus neither overflows nor cancels, and its gradient is exact at 0, where all logits of a new head are.
        loss = ops.sum(targets * ops.softplus(-y_pred) + (1.0 - targets) * ops.softplus(y_pred), axis=-1)  # (B,)
        return _of_labeled(loss, y_true)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="keras_vit")
class Binary(keras.losses.Loss):
    """Binary cross-entropy, averaged over the classes, where every label above 0 counts as 1.

    After mixup and CutMix both classes of an image are present ("ResNet strikes back", arXiv 2110.00476, and DeiT III,
    arXiv 2204.07118: `--bce-loss` in engine.py of facebookresearch/deit). Labels and logits as for `Softmax`.
    """

    def __init__(self, name="binary", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, y_true, y_pred):
        present = dense_labels(y_true, y_pred) > 0
        return _of_labeled(ops.mean(ops.softplus(ops.where(present, -y_pred, y_pred)), axis=-1), y_true)  # (B,)


@keras.saving.register_keras_serializable(package="keras_vit")
class OfVectors(keras.losses.Loss):
    """A loss of labels (B, C), for which numbers of classes (B,) become vectors of zeros and ones.

    Args:
        loss: As `compile` takes it: a loss of Keras, a function (labels, logits) -> (B,), or a name.
    """

    def __init__(self, loss, name=None, **kwargs):
        self.loss = keras.losses.get(loss)
        kwargs.setdefault("reduction", getattr(self.loss, "reduction", "sum_over_batch_size"))
        super().__init__(name=name or getattr(self.loss, "name", None), **kwargs)

    def call(self, y_true, y_pred):
        return getattr(self.loss, "call", self.loss)(dense_labels(y_true, y_pred), y_pred)

    def get_config(self):
        return {**super().get_config(), "loss": keras.saving.serialize_keras_object(self.loss)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "loss": keras.saving.deserialize_keras_object(config["loss"])})


def dense_labels(labels, logits):
    """Labels (B,) or (B, C) as (B, C) in the logits' dtype; integers that are not classes, such as -1, become zeros."""
    if len(labels.shape) == len(logits.shape):
        return ops.cast(labels, logits.dtype)
    return ops.one_hot(ops.cast(labels, "int32"), logits.shape[-1], dtype=logits.dtype)  # (B, C)


def _of_labeled(loss, labels):
    """The loss (B,) of images with a label, and 0 of the others, whose integers are below 0."""
    return ops.where(labels >= 0, loss, 0.0) if len(labels.shape) == 1 else loss


def build_loss(recipe: Supervised) -> keras.losses.Loss:
    """Builds the loss of a recipe."""
    if recipe.loss == "binary":
        return Binary()
    return {"softmax": Softmax, "sigmoid": Sigmoid}[recipe.loss](recipe.label_smoothing)


def set_head_bias(model, value: float):
    """Fills the bias of a model's head, or of both heads of a DeiT.

    The authors' code uses -10 with the sigmoid loss (google-research/vision_transformer, `head_bias_init`): no class is
    likely at first, so the loss does not start at C log 2.
    """
    for head in (model.head, getattr(model, "head_distillation", None)):
        if head is not None:
            head.bias.assign(ops.full(head.bias.shape, value, dtype=head.bias.dtype))
