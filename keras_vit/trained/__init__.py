"""Trained models in the package, such as "cifar10/R6_Ti_4": folders with model.keras, labels.txt and a model card."""

from pathlib import Path

FOLDER = Path(__file__).parent


def packaged_names() -> tuple[str, ...]:
    """The names that `keras_vit.load` takes without a download."""
    return tuple(sorted(file.parent.relative_to(FOLDER).as_posix() for file in FOLDER.glob("*/*/model.keras")))


def local_folder(weights):
    """The folder of a model inside the package for its name, unless a local file or folder has it; else `weights`."""
    if isinstance(weights, str) and weights in packaged_names() and not Path(weights).exists():
        return str(FOLDER / weights)
    return weights
