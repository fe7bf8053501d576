"""Names of the classes of ImageNet, files of class names, and predictions by name. B batch, C classes.

README.md in this folder has the sources of ImageNet's lists: WordNet ids and names in the order of the outputs of
published checkpoints. Files have one name per line: labels.txt of a run, and the names beside a converted model.
"""

import functools
import gzip
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from keras_vit.images import is_integer
from keras_vit.messages import first_names

__all__ = ["decode_predictions", "imagenet_class_names"]  # others use the rest from here, too

NUM_CLASSES = (1000, 21841, 21843)
FILES = {1000: "imagenet_1k.txt.gz", 21843: "imagenet_21k.txt.gz"}
# ImageNet's release of fall 2011 (21,841 classes) has the same order without these two.
NOT_IN_FALL_2011 = ("n03931044", "n09859684")


@functools.cache
def imagenet_class_names(num_classes: int = 1000) -> tuple[tuple[str, str], ...]:
    """(WordNet id, name) of each class, such as ("n01440764", "tench, Tinca tinca").

    Args:
        num_classes: 1000 for ImageNet-1k, 21843 for ImageNet-21k in Google's checkpoints, 21841 for ImageNet-21k as
            released in fall 2011.

    Raises:
        ValueError: `num_classes` is none of these.
    """
    if num_classes == 21841:
        return tuple(row for row in imagenet_class_names(21843) if row[0] not in NOT_IN_FALL_2011)
    if num_classes not in FILES:
        raise ValueError(
            f"ImageNet has 1000, 21841 or 21843 classes. Received: {num_classes}. For another dataset pass "
            "class_names=[...]."
        )
    text = gzip.decompress(resources.files("keras_vit.class_names").joinpath(FILES[num_classes]).read_bytes()).decode()
    rows = (line.partition("\t") for line in text.splitlines())
    return tuple((wordnet_id, name) for wordnet_id, _, name in rows)


ACTIVATIONS = ("auto", "softmax", "sigmoid", None)
SIGMOID_CLASSES = (1, 21843)  # a question of yes or no, and ImageNet-21k in Google's checkpoints


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
            every row is a distribution (nonnegative, sum of 1); else sigmoid for one class and for 21843, because
            Google's checkpoints of ImageNet-21k are trained with one sigmoid per class, and softmax otherwise.

    Returns:
        B lists of `top` tuples (WordNet id, name, probability). The id is None for names without one.

    Raises:
        ValueError: The outputs are not (B, C) or not finite, `top` is not between 1 and C, there are no default names
            for C classes, the number of names is not C, or the activation is unknown.
    """
    if not isinstance(outputs, np.ndarray):
        from keras import ops  # reading a checkpoint imports this package, and running an exported file

        outputs = np.asarray(ops.convert_to_numpy(outputs))
    outputs = outputs.astype("float64")  # (B, C)
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
    probabilities = as_probabilities(outputs, activation)
    return [[(*pairs[i], float(row[i])) for i in best] for row, best in zip(probabilities, order)]


def top_classes(outputs: np.ndarray, names, top: int, activation: str | None) -> list[list[tuple[str, float]]]:
    """Logits or probabilities (B, C) to lists of (name, probability); raises ValueError unless `top` is at least 1.

    Args:
        activation: See `decode_predictions`; None for probabilities.
    """
    if not is_integer(top):
        raise ValueError(f"`top` must be an integer of at least 1. Received: {top!r}")
    decoded = decode_predictions(outputs, min(top, len(names)), class_names=names, activation=activation)
    return [[(name, probability) for _, name, probability in best] for best in decoded]


def _as_pair(name):
    return tuple(name) if isinstance(name, (tuple, list)) else (None, str(name))


def as_probabilities(outputs: np.ndarray, activation: str | None) -> np.ndarray:
    """Logits (B, C) to probabilities, see `decode_predictions`."""
    if activation == "auto":
        # The tolerance is for sums in bfloat16.
        distribution = (outputs >= 0).all() and (np.abs(outputs.sum(axis=1) - 1) < 0.02).all()
        activation = None if distribution else "sigmoid" if outputs.shape[1] in SIGMOID_CLASSES else "softmax"
    if activation == "sigmoid":
        return np.exp(-np.logaddexp(0, -outputs))
    if activation == "softmax":
        exponentials = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)
    return outputs


LABELS = "labels.txt"
# Names that a folder has one of, so that its labels.txt is of this model.
MODELS = ("model.keras", "model.safetensors")


def labels_file(weights) -> Path:
    """The file of a model's own class names, which may be missing.

    Args:
        weights: The folder of a run or of model.safetensors, or a file. Those called model.* share the folder's
            labels.txt; another, such as deit.npz, has deit.npz.labels.txt.
    """
    path = Path(weights)
    if path.is_dir():
        return path / LABELS
    return path.with_name(LABELS if path.name in MODELS else f"{path.name}.{LABELS}")


def own_class_names(weights, num_classes: int, is_own_head: bool = True) -> list[str] | None:
    """The class names that a model was trained with, in the order of its outputs; None if they are not known.

    Another number of names is an error, unless the model has another head than the weights.
    """
    file = labels_file(weights)
    if not num_classes or not file.is_file():
        return None
    names = read_class_names(file)
    if is_own_head and len(names) != num_classes:
        raise ValueError(
            f"{file} has {len(names)} class names, but the model beside it has {num_classes} classes. Restore the "
            "file, or remove it."
        )
    return names if len(names) == num_classes else None


def read_class_names(file) -> list[str]:
    """The names in a text file, one per line."""
    if not Path(file).is_file():
        raise ValueError(f"There is no file of class names {file}. Expected a text file with one class name per line.")
    try:
        names = Path(file).read_text("utf-8-sig").splitlines()  # some editors begin with a mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}. Expected one class name per line.") from error
    if not names:
        raise ValueError(f"{file} is empty. Expected one class name per line, in the order of the model's outputs.")
    return checked_lines(names)


def class_names_text(names: Sequence[str]) -> str:
    """The text of a file of class names; raises ValueError, see `checked_lines`."""
    return "".join(f"{name}\n" for name in checked_lines(names))


def checked_lines(names: Sequence) -> list[str]:
    """Names that can be written one per line."""
    if isinstance(names, str):
        raise ValueError(f"`class_names` must be a list of strings, one per output. Received: {names!r}")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or name.splitlines() != [name]:
            raise ValueError(f"A class name must be one line of text. Received: {name!r} for class {index}")
    return list(names)


def names_of_outputs(names: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    """A model's argument `class_names` as a tuple; None without names."""
    if names is None:
        return None
    lines = checked_lines(names)
    if len(lines) != num_classes:
        raise ValueError(
            f"`class_names` must have one name per class. Received: {len(lines)} names for {num_classes} classes"
        )
    return tuple(lines)


def describe_difference(expected: Sequence[str], received: Sequence[str]) -> str:
    """How two lists of class names differ, in a few words; "" if they are equal.

    Names a moved class as such, since a list in another order has the same names and silently wrong labels.
    """
    expected, received = list(expected), list(received)
    missing = [name for name in expected if name not in set(received)]
    new = [name for name in received if name not in set(expected)]
    if len(expected) == len(received) and not missing and not new:
        moved = [pair for pair in enumerate(zip(expected, received)) if pair[1][0] != pair[1][1]]
        if not moved:
            return ""
        index, (name, other) = moved[0]
        order = "the order differs: " if sorted(expected) == sorted(received) else ""
        return f"{order}class {index} is {name!r} there, but {other!r} here"
    parts = [f"{len(expected)} classes there, {len(received)} here"] if len(expected) != len(received) else []
    parts += [f"missing here: {first_names(map(repr, missing))}"] if missing else []
    parts += [f"new here: {first_names(map(repr, new))}"] if new else []
    return "; ".join(parts)
