"""Weights and datasets of a command line, checked before TensorFlow is imported, which takes seconds."""

import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from keras_vit.recipes.recipe.errors import RecipeError

# What is a path and no name of published weights; names of keras_vit.load may contain slashes and dots, too.
PATHS = ("/", "./", "../", "~")
RUNS = "runs/"  # the default folder of runs
# The default weights, fine-tuned on ImageNet: 83.7 % of its validation images, 22 million weights, 0.09 GB.
DEFAULT = "augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224"
# In the package, for machines without a network.
OFFLINE = "cifar10/R6_Ti_4"


def check_weights(weights: str | None):
    """Raises FileNotFoundError for weights that are neither a file or folder nor a published name; the Hub's pass."""
    if not weights or "://" in weights or weights.startswith("hf:") or _exists(Path(weights)):
        return
    from keras_vit.trained import packaged_names
    from keras_vit.weights.files import MODEL, is_unfinished, unfinished_message
    from keras_vit.weights.published import missing_folder, resolve, suggestion

    is_path = weights.startswith((*PATHS, RUNS))
    if not is_path and (weights in packaged_names() or resolve(weights)):
        return
    run = Path(weights).parent
    if Path(weights).name == MODEL and is_unfinished(run):
        raise FileNotFoundError(unfinished_message(run))
    hint = missing_folder(weights) if is_path else suggestion(weights)
    raise FileNotFoundError(f"There is no weights file or folder {Path(weights).absolute()}. {hint}".strip())


def _exists(path: Path) -> bool:
    """Whether there is a file or folder, or a TensorFlow checkpoint with this prefix."""
    return path.exists() or path.with_name(f"{path.name}.index").exists()


def check_model(weights: str, instead: str):
    """Raises ValueError for an exported model, with the sentence `instead`; else see `check_weights`."""
    if is_exported(weights):
        check_exported(weights)
        raise ValueError(f"Expected the Keras model or its weights. Received: the exported {weights}. {instead}")
    check_weights(weights)


def check_exported(path: str):
    """Raises FileNotFoundError unless there is this file or SavedModel."""
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no file {Path(path).absolute()}.")


def is_exported(weights: str) -> bool:
    """Whether these are a .tflite file, an .onnx file or a SavedModel."""
    return weights.endswith((".tflite", ".onnx")) or (Path(weights) / "saved_model.pb").is_file()


def process_variables() -> list[str]:
    """The variables of the environment that name several processes of a run."""
    return [name for name in ("TF_CONFIG", "KERAS_DISTRIBUTION_NUM_PROCESSES") if os.environ.get(name)]


def check_model_and_dataset(weights: str, dataset: str):
    """See `check_model` and `check_dataset`; images are converted."""
    check_model(weights, f"Pass what it was exported from; keras-vit describe {weights} prints what it contains.")
    check_dataset(dataset, converts=True)


def check_dataset(dataset: str, converts: bool = False):
    """Raises ValueError for a path without "folder:", and a local folder that is missing or has no images in folders.

    `open_dataset` raises all other errors. With `converts`, any file may be an image.
    """
    from keras_vit.recipes.data.folder_layout import EXTENSIONS, check_layout

    source, _, path = dataset.partition(":")
    if dataset.startswith(PATHS):
        raise RecipeError(
            "A path requires a prefix: 'folder:', or 'csv:', 'tfrecord:' or 'hf:' for other files.",
            {"data.dataset": dataset},
            {"data.dataset": f"folder:{dataset}"},
        )
    if source == "folder" and "://" not in path:
        expanded = os.path.expanduser(path)
        if not os.path.isdir(expanded):
            problem = f"{path!r} is a file" if os.path.isfile(expanded) else f"There is no folder {path!r}"
            raise ValueError(f"{problem}. Expected a folder with <class>/<image> or <split>/<class>/<image>.")
        check_layout(expanded, ("",) if converts else EXTENSIONS)


def keras_class(path: Path) -> str | None:
    """Class of the model in a .keras file; None for anything else, for which `keras_vit.load` has error messages."""
    if path.suffix != ".keras":
        return None
    try:
        with zipfile.ZipFile(path) as file:
            return json.loads(file.read("config.json"))["class_name"]
    except Exception:  # missing or damaged in any way
        return None


def load_default(load: Callable, note: Callable):
    """The name of the default weights, and the model that `load` returns for it.

    Where no download is possible, that of the package; `note(model)`, what the user should know of it, is printed.
    """
    try:
        return DEFAULT, load(DEFAULT)
    except ConnectionError as error:
        model = load(OFFLINE)
        print(f"The default weights cannot be downloaded: {error.__cause__ or error}.\n{note(model)}", file=sys.stderr)
        return OFFLINE, model
