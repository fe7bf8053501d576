"""The most likely classes of images. B batch, C classes."""

import numpy as np

from keras_vit.class_names.imagenet import imagenet_class_names

ACTIVATIONS = ("auto", "softmax", "sigmoid", None)
SIGMOID_CLASSES = 21843  # of ImageNet-21k in Google's checkpoints


def decode_predictions(
    outputs, top: int = 5, class_names=None, activation: str | None = "auto"
) -> list[list[tuple[str | None, str, float]]]:
    """The most likely classes of each image, in descending order.

    Args:
        outputs: (B, C) logits or probabilities of any backend.
        top: Number of classes per image.
        class_names: The C names of the classes, or (id, name) pairs; by default those of ImageNet for 1000, 21841 and
            21843 classes, see `imagenet_class_names`.
        activation: Applied to the outputs: "softmax", "sigmoid", or None if they are probabilities. "auto" is None if
            every row is a distribution (nonnegative, sum of 1); else sigmoid for 21843 classes, because Google's
            checkpoints of ImageNet-21k are trained with one sigmoid per class, and softmax otherwise.

    Returns:
        B lists of `top` tuples (WordNet id, name, probability). The id is None for names without one.

    Raises:
        ValueError: The outputs are not (B, C) or not finite, `top` is not between 1 and C, there are no default names
            for C classes, the number of names is not C, or the activation is unknown.
    """
    from keras import ops  # reading a checkpoint imports this package

    outputs = np.asarray(ops.convert_to_numpy(outputs)).astype("float64")  # (B, C)
    if outputs.ndim != 2 or not outputs.shape[1]:
        raise ValueError(f"`outputs` must have shape (batch, classes). Received: {outputs.shape}.")
    if not np.isfinite(outputs).all():
        raise ValueError("`outputs` contains NaN or infinite values. Check the model and its input.")
    classes = outputs.shape[1]
    if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or not 1 <= top <= classes:
        raise ValueError(f"`top` must be an integer from 1 to the number of classes, {classes}. Received: {top!r}.")
    if activation not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {ACTIVATIONS}. Received: {activation!r}.")
    pairs = imagenet_class_names(classes) if class_names is None else [_as_pair(name) for name in class_names]
    if len(pairs) != classes:
        raise ValueError(f"`class_names` must have one name for each of {classes} classes. Received: {len(pairs)}.")

    order = np.argsort(-outputs, axis=1, kind="stable")[:, :top]  # (B, top)
    probabilities = _probabilities(outputs, activation)
    return [[(*pairs[i], float(row[i])) for i in best] for row, best in zip(probabilities, order)]


def _as_pair(name):
    return tuple(name) if isinstance(name, (tuple, list)) else (None, str(name))


def _probabilities(outputs, activation):
    """(B, C) -> (B, C) in [0, 1]."""
    if activation == "auto":
        # The tolerance is for sums in bfloat16.
        distribution = (outputs >= 0).all() and (np.abs(outputs.sum(axis=1) - 1) < 0.02).all()
        activation = None if distribution else "sigmoid" if outputs.shape[1] == SIGMOID_CLASSES else "softmax"
    if activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -outputs))
    if activation == "softmax":
        exponentials = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)
    return outputs
