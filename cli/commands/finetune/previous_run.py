"""The run that the output folder of `keras-vit finetune` has: whether a command asks for it, and its recipe."""

import json
import os
import shlex
from pathlib import Path

from keras_vit.images import as_size
from keras_vit.weights.files import METRICS, RECIPE, checkpoint_steps
from keras_vit_cli.commands.finetune.earlier_run import origin
from keras_vit_cli.inputs import check_weights
from keras_vit_cli.preprocessing_flags import LoadingFlags
from keras_vit_cli.recipe_options import option

TABLES = "groups.csv", "folds.csv"  # of the images, in the folder of the run: without folds, and with them
# Fields of a recipe's data by the names that they have in a `Preprocessing`. `keras_vit.load` ignores the image size.
FIELDS = {
    "mean": "mean",
    "std": "std",
    "resize": "evaluation_resize",
    "crop_fraction": "evaluation_crop",
    "interpolation": "interpolation",
    "antialias": "antialias",
    "pixel_range": "pixel_range",
}


def check_same_run(
    folder: Path,
    weights: str | None,
    preparation: LoadingFlags,
    output: Path,
    class_weight: str | None = None,
    group: str | None = None,
    folds: int | None = None,
):
    """Checks that a command asks for the run that its output folder has: images, weights, preparation and the others.

    Raises ValueError for another run, and FileNotFoundError for weights that no longer exist.
    """
    try:
        recipe = json.loads((output / RECIPE).read_text("utf-8"))
        data, recorded = recipe["data"], recipe.get("weights", "no weights")
        start = origin(output, recorded)
        images = Path(data["dataset"].removeprefix("folder:")).resolve()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # `previous_recipe` reports it
    had, received = [], []
    if folder.resolve() not in (images, *images.parents) or weights not in (None, start):
        had.append(f"of {data['dataset']} from {start}")
        received.append(f"{folder}{f' and --weights {weights}' if weights else ''}")
    if differing := _differing(data, preparation.fields() or {}):
        had.append(f"with {', '.join(f'{name} {_text(old)}' for name, old, _ in differing)}")
        received.append(", ".join(f"{name} {_text(new)}" for name, _, new in differing))
    size = preparation.image_size
    if size and as_size(size) != as_size(data.get("image_size", size)):
        had.append(f"with {option('image_size', data['image_size'])}")
        received.append(option("image_size", size))
    if class_weight not in (None, recipe.get("class_weight")):
        had.append("without --class-weight")
        received.append(f"--class-weight {class_weight}")
    had_folds = 0 if data.get("test_split") else data["train_split"].count("+") + 1
    if folds not in (None, had_folds):
        had.append(f"with --folds {had_folds}" if had_folds else "without --folds")
        received.append(f"--folds {folds}")
    if group not in (None, data.get("group")) and not _keeps_together(output, data, images, group):
        had.append(f"with --group {shlex.quote(data['group'])}" if data.get("group") else "without --group")
        received.append(f"--group {shlex.quote(group)}")
    if had:
        raise ValueError(
            f"{output} has a run {', '.join(had)}. Received: {', '.join(received)}. To use that run, omit the options "
            f"that differ; for another run add {another(output)}"
        )
    finished = (output / METRICS).exists()
    try:
        check_weights(weights if finished else recorded)
    except FileNotFoundError as error:
        use = "The run is finished without them: omit --weights. " if finished else ""
        raise FileNotFoundError(f"{error} {use}For another run add {another(output)}") from error


def _keeps_together(output: Path, data: dict, images: Path, group: str) -> bool:
    """Whether the run's own table of groups keeps the images of each of these groups together."""
    from keras_vit.recipes.data.groups import groups_of, read_table

    file = output / Path(data.get("group") or "").name
    if file.name not in TABLES or not file.is_file():
        return False
    table = read_table(str(file)).groups
    asked = groups_of(str(images), group, [("", file) for file in table])
    return len({(asked[file], united) for file, united in table.items()}) == len(set(asked.values()))


def previous_recipe(output: Path):
    """The recipe of the interrupted or finished run in the output folder; prints which it is.

    Raises ValueError if it cannot be read, or if the run is finished and its model is missing or images have changed.
    """
    from keras_vit.recipes.recipe.file import read_run
    from keras_vit.recipes.runs.folder import check_unchanged
    from keras_vit.recipes.runs.run_data import RunData
    from keras_vit.weights.files import MODEL

    recipe = read_run(output)
    if recipe.data.converted and not os.path.isdir(recipe.data.converted):
        raise ValueError(
            f"{recipe.data.converted} is gone, in which the run stored images that TensorFlow does not read. Restore "
            f"it, or start a new run: add {another(output)}"
        )
    if not (output / METRICS).exists():
        print(f"Resuming the run in {output}. For a new one add {another(output)}")
        return recipe
    if not (output / MODEL).exists():
        again = f"Delete {output / METRICS}, then the same command writes it from the last checkpoint. "
        again = again if checkpoint_steps(os.listdir(output)) else ""
        raise ValueError(
            f"The run in {output} is finished, but its {MODEL} is missing. {again}For a new run add {another(output)}"
        )
    try:
        check_unchanged(output, RunData(recipe))
    except ValueError as error:
        raise ValueError(f"{error} For a new run add {another(output)}") from error
    print(f"The run in {output} is finished. For a new one add {another(output)}")
    return recipe


def another(output: Path) -> str:
    """The option for another output folder."""
    return f"--output {shlex.quote(f'{output}-2')}"


def _differing(data: dict, preparation: dict) -> list[tuple[str, object, object]]:
    """Name, recorded and received value of each field of a preparation that differs from the recorded data."""
    from keras_vit.images.preprocessing import Preprocessing
    from keras_vit.recipes.configs.small_folder import training_interpolation

    wanted = Preprocessing.from_argument(preparation, 224).get_config()
    wanted["interpolation"] = training_interpolation(wanted["interpolation"])
    recorded = {name: data[field] for name, field in FIELDS.items() if name in preparation and field in data}
    recorded = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
    return [(name, value, wanted[name]) for name, value in recorded.items() if value != wanted[name]]


def _text(value) -> str:
    return " ".join(f"{number:g}" for number in value) if isinstance(value, tuple) else str(value)
