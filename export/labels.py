"""The names of a model's classes, as they go into exported files: one a line."""

from collections.abc import Sequence

LABELS = "labels.txt"


def class_names(labels: Sequence, num_classes: int) -> list[str]:
    """Checks the labels of a model.

    Args:
        labels: A name for each class in the order of the outputs, or (WordNet id, words) pairs such as those of
            `keras_vit.labels.imagenet_labels`, of which the words count. Names may occur twice, as ImageNet's do.
        num_classes: Outputs of the model.

    Raises:
        ValueError: There are more or fewer labels than classes, or a label is empty or has several lines.
    """
    names = [label[1] if isinstance(label, (tuple, list)) and len(label) == 2 else label for label in labels]
    if isinstance(labels, str) or len(names) != num_classes:
        given = f"the text {labels!r}" if isinstance(labels, str) else f"{len(names)} labels"
        raise ValueError(f"`labels` must name each of the model's {num_classes} classes. Received: {given}")
    return one_line_each(names)


def one_line_each(names: Sequence) -> list[str]:
    """The names, each of which is one line of text.

    Raises:
        ValueError: One is empty, has several lines or is no text.
    """
    if isinstance(names, str):
        raise ValueError(f"`labels` must be a list of names, one for each output. Received: {names!r}")
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or name.splitlines() != [name]:
            raise ValueError(f"A label must be one line of text, but that of class {place} is {name!r}.")
    return list(names)
