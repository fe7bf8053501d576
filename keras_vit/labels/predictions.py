"""The most likely classes of each image. B batch, C classes."""

import numpy as np
from keras import ops

from keras_vit.labels.imagenet import imagenet_labels

ACTIVATIONS = ("auto", "softmax", "sigmoid", None)


def decode_predictions(
    outputs, top: int = 5, labels=None, activation: str | None = "auto"
) -> list[list[tuple[str | None, str, float]]]:
    """The `top` classes of each image, most likely first.

    Args:
        outputs: (B, C) logits or probabilities of any backend.
        top: How many classes.
        labels: The C names of the classes, or (id, name) pairs. By default those of ImageNet for 1000, 21841 and 21843
            classes, see `imagenet_labels`.
        activation: What turns the outputs into probabilities: "softmax", "sigmoid", or None if they are probabilities.
            "auto": None where every row is a distribution already (not negative, sum of 1); else sigmoid for 21843
            classes, because Google's checkpoints of ImageNet-21k are trained with one sigmoid a class, and softmax for
            any other number.

    Returns:
        B lists of `top` tuples (WordNet id, words, probability). The id is None for labels without one.

    Raises:
        ValueError: Outputs that are not (B, C) or not finite; a `top` that is not 1 to C; a number of classes without
            known labels; labels that are not C; an unknown activation.
    """
    outputs = np.asarray(ops.convert_to_numpy(outputs)).astype("float64")  # (B, C)
    if outputs.ndim != 2 or not outputs.shape[1]:
        raise ValueError(f"`outputs` must have the shape (batch, classes). Received: {outputs.shape}.")
    if not np.isfinite(outputs).all():
        raise ValueError("`outputs` holds NaN or infinite values: the model or its input is broken.")
    classes = outputs.shape[1]
    if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or not 1 <= top <= classes:
        raise ValueError(f"`top` must be an integer from 1 to the number of classes, {classes}. Received: {top!r}.")
    if activation not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {ACTIVATIONS}. Received: {activation!r}.")
    named = imagenet_labels(classes) if labels is None else [_as_pair(label) for label in labels]
    if len(named) != classes:
        raise ValueError(f"`labels` must name the {classes} classes of `outputs`. Received: {len(named)} labels.")

    order = np.argsort(-outputs, axis=1, kind="stable")[:, :top]  # (B, top)
    probabilities = _probabilities(outputs, activation)
    return [[(*named[i], float(row[i])) for i in best] for row, best in zip(probabilities, order)]


def _as_pair(label):
    return tuple(label) if isinstance(label, (tuple, list)) else (None, str(label))


def _probabilities(outputs, activation):
    """(B, C) -> (B, C) in [0, 1]."""
    if activation == "auto":
        # A tolerance for sums of bfloat16.
        distribution = (outputs >= 0).all() and (np.abs(outputs.sum(axis=1) - 1) < 0.02).all()
        activation = None if distribution else "sigmoid" if outputs.shape[1] == 21843 else "softmax"
    if activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -outputs))
    if activation == "softmax":
        exponentials = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)
    return outputs
