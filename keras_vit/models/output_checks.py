"""Checks of losses and metrics in `compile`: the outputs are logits, not probabilities. N examples, C classes.

A loss or metric is judged by what it computes for known labels and outputs, whatever its class or name.
"""

import inspect
import warnings
from functools import partial

import keras
import numpy as np
from keras import ops

from keras_vit.models.classification import is_projection, output_activation

# Outputs of the right classes, and of others; then both exchanged, which concerns the outputs outside [0, 1] alone.
# The outputs of each example sum to 1, because some losses divide by the sum.
RIGHT, WRONG = [-1.0, -1.5, -2.0, 4.0], [2.0, 2.5, 3.0, -3.0]
EXCHANGED_RIGHT, EXCHANGED_WRONG = [-2.5, -2.25, -2.1, 1.75], [3.5, 3.25, 3.1, -0.75]
# Probabilities of the right classes, of which the others have the rest: enough for any threshold between 0 and 1, also
# of precision or recall. For functions of users at 0.5 alone: any other threshold of logits may be that of a sigmoid,
# which is above 0.6 where the logit is above 0.405.
ANY_THRESHOLD, THRESHOLD_OF_USERS = np.linspace(0.501, 0.999, 200).tolist(), [0.501]
COMPUTATIONS = {"update_state", "result", "call", "__call__"}
# Arguments of Keras's metrics, any of which may make them take logits for these probabilities.
ARGUMENTS: dict[str, list[dict]] = {
    "sigmoid": [{"from_logits": True}, {"threshold": 0}, {"thresholds": 0}, {"threshold": 1e-6}],
    "softmax": [{"from_logits": True}, {"threshold": None}, {"top_k": 1}],
}


def check_loss_and_metrics(model, losses, metrics):
    """Raises a ValueError for a loss or metric that takes a model's logits for probabilities, or cannot train its head.

    Args:
        model: A model whose outputs are logits, or, if its head is a projection, any values.
        losses, metrics: As `compile` takes them: names, functions, instances, lists and dictionaries of them.
    """
    classes = model.num_classes
    for item in keras.tree.flatten(losses):
        loss = _resolved(item, keras.losses.get, classes)
        if not is_projection(model) and (_takes_probabilities(loss, classes) or _is_of_fractions(loss, classes)):
            raise ValueError(
                "The model's outputs are logits. Expected a loss of logits: keras.losses.SparseCategoricalCrossentropy("
                "from_logits=True) for numbers of classes, CategoricalCrossentropy or BinaryCrossentropy(from_logits="
                f"True) for vectors. Received: {item}, which takes probabilities."
            )
        if _is_flat_below_zero(loss, classes) and not any(map(ops.any, model.head.weights)):
            raise ValueError(
                "Expected a loss with a gradient at 0, the outputs of a new head. Received: "
                f"{item}, which would change no weight. Start at the means of the labels: model.head.bias.assign(means)"
            )
    for item in [] if is_projection(model) else keras.tree.flatten(metrics):
        metric = _resolved(item, keras.metrics.get, classes)
        if _takes_probabilities(metric, classes):
            fix = _fix(metric, item, output_activation(model), classes)
            raise ValueError(f"The model's outputs are logits. Expected {fix}. Received: {item}, of probabilities.")


def _resolved(item, get, num_classes):
    """The function or instance of a name, also of those that Keras replaces when it sees the data; None for others."""
    if isinstance(item, str) and item.lower() in ("accuracy", "acc"):  # of several classes: that of the largest output
        item = "binary_accuracy" if num_classes == 1 else None
    elif isinstance(item, str) and item.lower() in ("crossentropy", "ce"):
        item = "binary_crossentropy" if num_classes == 1 else "sparse_categorical_crossentropy"
    try:
        return None if item is None else get(item)
    except Exception:  # Keras reports unknown names
        return None


def _takes_probabilities(item, num_classes) -> bool | None:
    """Whether a loss or metric takes outputs for probabilities; None if it takes other labels or outputs than ours.

    Whatever is below 0 and above 1 is then the same for it, but not what is between; unless it only ranks the outputs
    of an example, as the accuracy does.
    """
    by_keras = _is_by_keras(item)
    if item is None or (by_keras and _from_logits(item) is not None):
        return item is not None and not _from_logits(item)
    inside = ANY_THRESHOLD if by_keras else THRESHOLD_OF_USERS
    outside = [1 - value for value in inside]
    for labels, outputs in _examples(len(RIGHT + inside), num_classes):
        value = partial(_value, item, labels)
        try:
            first = value(outputs(RIGHT + inside, WRONG + outside))
            if not np.allclose(first, value(outputs(EXCHANGED_RIGHT + inside, EXCHANGED_WRONG + outside)), 3e-6, 0):
                return False
            if np.allclose(first, value(outputs(RIGHT + outside, WRONG + inside)), 3e-6, 0):
                return False
            return not np.allclose(first, value(outputs(RIGHT + inside, WRONG + outside) + 10), 3e-6, 0)
        except Exception:  # of other labels or numbers of outputs than these
            continue
    return None


def _is_by_keras(item) -> bool:
    """Whether Keras computes it, with arguments whose meaning is known; also in subclasses that do not change it."""
    kinds = [item] if inspect.isfunction(item) else type(item).__mro__
    kind = next((kind for kind in kinds if _is_of_keras(kind) or COMPUTATIONS & vars(kind).keys()), None)
    return _is_of_keras(kind) and kind is not keras.metrics.MeanMetricWrapper


def _is_of_keras(kind) -> bool:
    return (getattr(kind, "__module__", None) or "").startswith("keras.")


def _from_logits(item) -> bool | None:
    if inspect.isfunction(item):
        parameter = inspect.signature(item).parameters.get("from_logits")
        return None if parameter is None else parameter.default
    return item.get_config().get("from_logits") if hasattr(item, "get_config") else None


def _examples(examples, num_classes):
    """Labels, and the function of their outputs (N, C) from those of the right classes and of others.

    The labels are vectors (N, C), and numbers (N,), of two classes, then of all. Of one class they are (2 N, 1).
    """
    if num_classes == 1:
        labels = np.repeat([1, 0], examples)[:, None]
        for dtype in ("float32", "int32"):
            yield labels.astype(dtype), lambda right, wrong: np.array(right + wrong, "float32")[:, None]
        return
    for width in sorted({2, num_classes}):
        numbers = np.arange(examples, dtype="int32") % width
        is_right, is_other = ((numbers + i)[:, None] % width == np.arange(width) for i in (0, 1))

        def outputs(right, wrong, is_right=is_right, is_other=is_other):
            return (is_right * np.array(right)[:, None] + is_other * np.array(wrong)[:, None]).astype("float32")

        yield is_right.astype("float32"), outputs
        yield numbers, outputs


def _value(item, labels, outputs):
    """The value of a loss or metric. Nothing of the metric changes, and no seed."""
    function = item
    if isinstance(item, keras.metrics.Metric):
        own_state = not isinstance(item, keras.metrics.MeanMetricWrapper) or not _is_of_keras(type(item))
        function = partial(_update, _copy(item) if own_state else item)
    with keras.StatelessScope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers of classes
        results = keras.tree.flatten(function(labels, ops.convert_to_tensor(outputs)))
        return np.concatenate([np.ravel(ops.convert_to_numpy(result)) for result in results])


def _copy(metric):
    """A metric of the same arguments, for all classes: ours have examples of few."""
    config = metric.get_config()
    return type(metric).from_config({**config, "class_id": None} if "class_id" in config else config)


def _update(metric, labels, outputs):
    metric.reset_state()
    metric.update_state(labels, outputs)
    return metric.result()


def _is_of_fractions(loss, num_classes) -> bool:
    """Whether a loss is 0 at the labels and below 0 beyond, such as Dice, or not finite where an output is below 0."""
    for labels, outputs in _examples(examples := 4, num_classes):
        points = ((0.75, 0.25), (1.0, 0.0), (1.5, -0.5))  # outputs of the right classes, and of others
        try:
            within, at, beyond = (_value(loss, labels, outputs([y] * examples, [x] * examples)) for y, x in points)
        except Exception:  # of other labels than these, or None
            continue
        if np.isfinite(within).all():
            return not np.isfinite(beyond).all() or (np.allclose(at, 0, atol=1e-6) and beyond.sum() < -1e-3)
    return False


def _is_flat_below_zero(loss, num_classes) -> bool:
    """Whether a loss decreases above 0, but does not depend on outputs below."""
    if loss is None:
        return False
    ones = np.ones((1, num_classes), "float32")
    try:
        below, zero, above = (_value(loss, ones, ones * x).sum() for x in (-0.01, 0, 0.01))
    except Exception:  # of other labels than these
        return False
    return below == zero > above


def _fix(metric, item, activation, num_classes) -> str:
    """What to use instead of a metric of probabilities."""
    kind = type(metric)
    if inspect.isfunction(metric):
        kind = getattr(keras.metrics, "".join(word.title() for word in metric.__name__.split("_")), kind)
    if not _is_by_keras(metric) or not issubclass(kind, keras.metrics.Metric):
        return f"a metric that computes keras.ops.{activation} of the outputs"
    config = metric.get_config() if isinstance(metric, keras.metrics.Metric) else {}
    for arguments in ARGUMENTS[activation]:
        try:
            candidate = kind.from_config({**config, **arguments})
        except Exception:  # it has no such argument
            continue
        if _takes_probabilities(candidate, num_classes) is False:
            shown = {"name": item, **arguments} if isinstance(item, str) else arguments
            text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
            return f"the metric keras.metrics.{kind.__name__}({text})"
    return f"a subclass of keras.metrics.{kind.__name__} whose `update_state` passes on keras.ops.{activation}(y_pred)"
