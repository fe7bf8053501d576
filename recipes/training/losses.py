"""The losses of classifiers, from logits. B batch, C classes.

Labels are numbers (B,), or floats (B, C): shares that sum to 1 after mixup, zeros and ones where several answers are
right.
"""

import keras
from keras import ops

from keras_vit.recipes.recipe import Supervised

HEADS = ("head", "head_distillation")


@keras.saving.register_keras_serializable(package="keras_vit")
class Softmax(keras.losses.Loss):
    """Cross-entropy of the softmax: -sum over the classes of t log softmax(x), with t = (1 - s) y + s / C.

    Labels: (B,) integers or (B, C) floats. Logits: (B, C). One value an image, then Keras's reduction: the mean.

    Args:
        label_smoothing: s, in [0, 1) (Szegedy et al., arXiv 1512.00567, section 7).

    Raises:
        ValueError: A smoothing that is out of range.
    """

    def __init__(self, label_smoothing=0.0, name="softmax", **kwargs):
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"`label_smoothing` must be at least 0 and below 1. Received: {label_smoothing}")
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        targets = dense_labels(y_true, y_pred)
        if self.label_smoothing:
            targets = (1.0 - self.label_smoothing) * targets + self.label_smoothing / y_pred.shape[-1]
        return -ops.sum(targets * ops.log_softmax(y_pred, axis=-1), axis=-1)  # (B,)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="keras_vit")
class Sigmoid(keras.losses.Loss):
    """Binary cross-entropies, summed over the classes: the paper's pre-training, where an image has several labels.

    -sum over the classes of y log sigmoid(x) + (1 - y) log sigmoid(-x), as google-research/big_vision
    (utils.py, sigmoid_xent). Labels and logits as for `Softmax`.
    """

    def __init__(self, name="sigmoid", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, y_true, y_pred):
        targets = dense_labels(y_true, y_pred)
        # Softplus neither overflows nor cancels, and its gradient is right at 0, where a new head's logits all are.
        return ops.sum(targets * ops.softplus(-y_pred) + (1.0 - targets) * ops.softplus(y_pred), axis=-1)  # (B,)


def dense_labels(labels, logits):
    """Labels (B,) or (B, C) as (B, C) of the logits' type; a number that is no class, such as -1, becomes zeros."""
    if len(labels.shape) == len(logits.shape):
        return ops.cast(labels, logits.dtype)
    return ops.one_hot(ops.cast(labels, "int32"), logits.shape[-1], dtype=logits.dtype)  # (B, C)


def build_loss(recipe: Supervised) -> keras.losses.Loss:
    """The loss of a recipe.

    Raises:
        ValueError: An unknown name, or a label smoothing for the sigmoid loss, which has none.
    """
    if recipe.loss == "softmax":
        return Softmax(recipe.label_smoothing)
    if recipe.loss != "sigmoid":
        raise ValueError(f"`loss` must be 'softmax' or 'sigmoid'. Received: {recipe.loss!r}")
    if recipe.label_smoothing:
        raise ValueError(
            f"label_smoothing={recipe.label_smoothing} belongs to loss='softmax', but the loss is 'sigmoid'. Leave it "
            "at 0."
        )
    return Sigmoid()


def set_head_bias(model, value: float):
    """Fills the biases of a model's head, of both heads of a DeiT.

    With the sigmoid loss, the authors' code has -10 (google-research/vision_transformer, `head_bias_init`): at first no
    class is likely, so the loss does not begin at C log 2.

    Raises:
        ValueError: The model has no head.
    """
    heads = [head for name in HEADS if (head := getattr(model, name, None)) is not None]
    if not heads:
        raise ValueError(f"{model.name} has no head to give a bias of {value}. Make it with num_classes.")
    for head in heads:
        head.bias.assign(ops.full(head.bias.shape, value, dtype=head.bias.dtype))
