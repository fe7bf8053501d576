"""Class names in text files, one per line: labels.txt of a run, and the names beside a converted model."""

from collections.abc import Sequence
from pathlib import Path

from keras_vit.name_list import first_names
from keras_vit.trained import local_folder

LABELS = "labels.txt"
# Names that a folder has one of, so that its labels.txt is of this model.
MODELS = ("model.keras", "model.safetensors")


def labels_file(weights) -> Path:
    """The file of a model's own class names, which may be missing.

    Args:
        weights: The folder of a run or of model.safetensors, the name of a model inside the package, or a file. Those
            called model.* share the folder's labels.txt; another, such as deit.npz, has deit.npz.labels.txt.
    """
    path = Path(local_folder(weights))
    if path.is_dir():
        return path / LABELS
    return path.with_name(LABELS if path.name in MODELS else f"{path.name}.{LABELS}")


def own_class_names(weights, num_classes: int) -> list[str] | None:
    """The class names that a model was trained with, in the order of its outputs; None if they are not known.

    Args:
        weights: As for `keras_vit.load`.
        num_classes: Outputs of the model; 0 for no head.

    Raises:
        ValueError: The file is not text, or has another number of names.
    """
    file = labels_file(weights)
    if not num_classes or not file.is_file():
        return None
    names = read_class_names(file)
    if len(names) != num_classes:
        raise ValueError(
            f"{file} has {len(names)} class names, but the model beside it has {num_classes} classes. Restore the "
            "file, or remove it."
        )
    return names


def read_class_names(file) -> list[str]:
    """The names in a text file, one per line.

    Raises:
        ValueError: It is no file, it is empty, a line is empty, or it is not UTF-8.
    """
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
    """Names that can be written one per line.

    Raises:
        ValueError: A name is empty, has several lines or is not a string.
    """
    if isinstance(names, str):
        raise ValueError(f"`class_names` must be a list of strings, one per output. Received: {names!r}")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or name.splitlines() != [name]:
            raise ValueError(f"A class name must be one line of text. Received: {name!r} for class {index}")
    return list(names)


def names_of_outputs(names: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    """A model's argument `class_names` as a tuple; None without names.

    Raises:
        ValueError: A name is not one line of text, or there is not one for each class.
    """
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
