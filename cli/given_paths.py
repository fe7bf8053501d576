"""Whether the files and folders of a command line exist, before TensorFlow is imported, which takes seconds."""

import glob
import os
from pathlib import Path

from keras_vit.recipes.recipe_errors import RecipeError

# What is a path and no name of published weights; names of keras_vit.load may contain slashes and dots, too.
PATHS = ("/", "./", "../", "~")
RUNS = "runs/"  # the default folder of runs
# In the folder of a run, from its start and at its end; as keras_vit.recipes.checkpoints.run_folder, which imports
# TensorFlow.
RUN_RECIPE, METRICS = "recipe.json", "metrics.json"


def check_weights(weights: str | None):
    """Raises FileNotFoundError for weights that are neither a file or folder nor a published name; the Hub's pass."""
    if not weights or "://" in weights or weights.startswith("hf:") or _exists(Path(weights)):
        return
    from keras_vit.trained import packaged_names
    from keras_vit.weights.published import missing_folder, resolve, suggestion
    from keras_vit.weights.runs import MODEL, is_unfinished, unfinished_message

    is_path = weights.startswith((*PATHS, RUNS))
    if not is_path and (weights in packaged_names() or resolve(weights)):
        return
    run = Path(weights).parent
    if Path(weights).name == MODEL and is_unfinished(run):
        raise FileNotFoundError(unfinished_message(run))
    hint = missing_folder(weights) if is_path else suggestion(weights)
    raise FileNotFoundError(f"There is no weights file or folder {Path(weights).absolute()}. {hint}".strip())


def check_dataset_path(dataset: str):
    """Raises ValueError for a local path of a dataset where there is nothing or no image in a folder of a class, or a
    path without "folder:".
    """
    from keras_vit.recipes.folder_layout import check_layout

    source, _, path = dataset.partition(":")
    if "://" in dataset:
        return
    if dataset.startswith(PATHS):
        raise RecipeError(
            "A path requires a prefix: 'folder:', or 'csv:', 'tfrecord:' or 'hf:' for other files.",
            {"data.dataset": dataset},
            {"data.dataset": f"folder:{dataset}"},
        )
    expanded = os.path.expanduser(path)
    if source == "folder":
        if not os.path.isdir(expanded):
            problem = f"{path!r} is a file" if os.path.isfile(expanded) else f"There is no folder {path!r}"
            raise ValueError(f"{problem}. Expected a folder with <class>/<image> or <split>/<class>/<image>.")
        check_layout(expanded)
    elif source in ("csv", "hf") and path.startswith(PATHS) and not os.path.isdir(expanded):
        raise RecipeError(f"There is no folder {path!r}.", {"data.dataset": dataset})
    elif source == "tfrecord" and not (os.path.exists(expanded) or glob.glob(expanded)):
        raise ValueError(f"There are no TFRecord files at {path}, such as train-00000-of-00010 or train.tfrecord.")


def check_new_run(run):
    """Raises RecipeError if a local `run.folder` contains a run and `run.resume` is not set."""
    if run.resume or not run.folder or "://" in run.folder:
        return
    if has_run(Path(run.folder)):
        raise RecipeError(
            f"The folder {run.folder} already contains a run.",
            {"run.folder": run.folder},
            [{"run.resume": True}, {"run.folder": f"{run.folder}-2"}],
        )


def has_run(folder: Path) -> bool:
    """Whether a local folder contains checkpoints or results."""
    return any(folder.glob("step-*.index")) or (folder / METRICS).exists()


def _exists(path: Path) -> bool:
    """Whether there is a file or folder, or a TensorFlow checkpoint with this prefix."""
    return path.exists() or path.with_name(f"{path.name}.index").exists()
