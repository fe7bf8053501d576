"""The run that is already in the output folder of `keras-vit finetune`.

`check_same_run` is called before TensorFlow is imported, which takes seconds: it reads recipe.json itself.
"""

import json
import shlex
from pathlib import Path

from keras_vit_cli.given_paths import METRICS, RUN_RECIPE, check_weights

# Fields of a recipe's data by the names that they have in a `Preprocessing`. `keras_vit.load` ignores the image size.
FIELDS = {
    "mean": "mean",
    "std": "std",
    "resize": "evaluation_resize",
    "crop_fraction": "evaluation_crop",
    "interpolation": "interpolation",
    "antialias": "antialias",
}


def check_same_run(folder: Path, weights: str | None, preparation: dict | None, output: Path):
    """Checks that a command asks for the run that its output folder has.

    Args:
        folder: The command's images.
        weights: Its weights, if it has any.
        preparation: From `PreprocessingFlags.fields`.
        output: The folder, which has a run.

    Raises:
        ValueError: The run is of other images, of other weights, or prepares images in another way.
        FileNotFoundError: The weights no longer exist.
    """
    try:
        recipe = json.loads((output / RUN_RECIPE).read_text("utf-8"))
        data, start = recipe["data"], recipe.get("weights", "no weights")
        images = Path(data["dataset"].removeprefix("folder:")).resolve()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # `previous_recipe` reports it
    had, received = [], []
    if folder.resolve() not in (images, *images.parents) or weights not in (None, start):
        had.append(f"of {data['dataset']} from {start}")
        received.append(f"{folder}{f' and --weights {weights}' if weights else ''}")
    if differing := _differing(data, preparation or {}):
        had.append(f"with {', '.join(f'{name} {_text(old)}' for name, old, _ in differing)}")
        received.append(", ".join(f"{name} {_text(new)}" for name, _, new in differing))
    if had:
        raise ValueError(
            f"{output} has a run {', '.join(had)}. Received: {', '.join(received)}. To use that run, omit the options "
            f"that differ; for another run add {another(output)}"
        )
    finished = (output / METRICS).exists()
    try:
        check_weights(weights if finished else start)
    except FileNotFoundError as error:
        use = "The run is finished without them: omit --weights. " if finished else ""
        raise FileNotFoundError(f"{error} {use}For another run add {another(output)}") from error


def previous_recipe(output: Path):
    """The recipe of the interrupted or finished run in the output folder; prints which it is.

    Raises:
        ValueError: The recipe cannot be read; or the run is finished and the images have changed.
    """
    from keras_vit.recipes.checkpoints.run_identity import check_unchanged
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.recipe_file import read_recipe

    recipe = read_recipe(output / RUN_RECIPE)
    if not (output / METRICS).exists():
        print(f"Resuming the run in {output}. For a new one add {another(output)}")
        return recipe
    try:
        check_unchanged(recipe, open_dataset(recipe.data))
    except ValueError as error:
        raise ValueError(f"{error} For a new run add {another(output)}") from error
    print(f"The run in {output} is finished. For a new one add {another(output)}")
    return recipe


def another(output: Path) -> str:
    """The option for another output folder."""
    return f"--output {shlex.quote(f'{output}-2')}"


def _differing(data: dict, preparation: dict) -> list[tuple[str, object, object]]:
    """Name, recorded and received value of each field of a preparation that differs from the recorded data."""
    from keras_vit.preprocessing import Preprocessing
    from keras_vit.recipes.small_folder import training_interpolation

    wanted = Preprocessing.from_argument(preparation, 224).get_config()
    wanted["interpolation"] = training_interpolation(wanted["interpolation"])
    recorded = {name: data[field] for name, field in FIELDS.items() if name in preparation and field in data}
    recorded = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
    return [(name, value, wanted[name]) for name, value in recorded.items() if value != wanted[name]]


def _text(value) -> str:
    return " ".join(f"{number:g}" for number in value) if isinstance(value, tuple) else str(value)
