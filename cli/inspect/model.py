"""What `keras-vit inspect` looks into: a Vision Transformer, with its masked-patch head where the file has it."""

import json
import zipfile
from pathlib import Path
from typing import NamedTuple

from keras_vit import VisionTransformer, load
from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.run_folder import RECIPE, find_checkpoints


class Inspected(NamedTuple):
    """A model that is open for inspection.

    Attributes:
        vit: The `VisionTransformer`.
        masked: The `MaskedPatchModel` around it, or None.
        recipe: The `MaskedPatch` that says how its images are corrupted, or None.
        labels: Names of the classes, or None.
    """

    vit: VisionTransformer
    masked: MaskedPatchModel | None = None
    recipe: MaskedPatch | None = None
    labels: list[str] | None = None


def open_inspected(weights: str) -> Inspected:
    """Opens whatever `keras_vit.load` takes, a .keras file of a `MaskedPatchModel`, or a run's folder.

    A run of masked patches leaves its head in its checkpoints only, since model.keras is what is fine-tuned.

    Raises:
        ValueError: The model is a ResNet; and what `keras_vit.load` raises.
    """
    path = Path(weights)
    if (path / RECIPE).is_file():
        return _of_run(path)
    if _class_name(path) == MaskedPatchModel.__name__:
        import keras

        masked = keras.saving.load_model(path, compile=False)
        return Inspected(masked.vit, masked, MaskedPatch(target=masked.target))
    model = load(weights)
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"{weights} is a {type(model).__name__}, a ResNet: it has no tokens of patches whose attention and "
            "positions could be shown. Expected a VisionTransformer. Of a ResNet features can be compared: "
            "keras_vit.inspect.nearest_neighbors(model.features(x), model.features(y))."
        )
    return Inspected(model)


def _of_run(path):
    from keras_vit.recipes.masked_patch.checkpoint import load_masked_patch
    from keras_vit.recipes.recipe_file import read_recipe
    from keras_vit.recipes.run_recipe import LABELS, MODEL

    recipe = read_recipe(path / RECIPE)
    if not isinstance(recipe, MaskedPatch) or not find_checkpoints(path):
        labels = path / LABELS
        names = labels.read_text().splitlines() if labels.is_file() else None
        return open_inspected(str(path / MODEL))._replace(labels=names)
    masked = load_masked_patch(recipe, path)
    return Inspected(masked.vit, masked, recipe)


def _class_name(path) -> str | None:
    """Of the model in a .keras file; None if it is none, which `keras_vit.load` says better."""
    if path.suffix != ".keras" or not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read("config.json"))["class_name"] if "config.json" in file.namelist() else None
