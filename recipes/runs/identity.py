"""Which run it is: by its recipe, its data, and what replaces parts of its recipe. A resumed run must be the same."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import tensorflow as tf

from keras_vit.class_names import describe_difference
from keras_vit.recipes.data.groups import TABLE
from keras_vit.recipes.recipe import USED_WITH_WEIGHTS, Recipe
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.values import flat_fields
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.weights.files import MODEL, RECIPE

# Fields of `run` that determine what is computed, and fields of `data` that do not: a resumed run may change the latter
# and all others of `run`.
RUN_IDENTITY = ("seed", "precision", "early_stopping_patience", "restore_best_weights", "monitor")
DATA_LOCATIONS = ("data_dir", "service", "converted")
# Of a recipe, what a user can replace, see `Replacements`: without a model, only the last two are known.
PARTS = ("model", "optimizer", "loss", "augment")


def check_recipe(recipe: Recipe, previous: Recipe, folder: str):
    """Raises RecipeError unless a recipe is that with which the run in its folder began, `previous`."""
    file, other_folder = os.path.join(folder, RECIPE), {"run.folder": f"{folder}-2"}
    if type(previous) is not type(recipe):
        raise RecipeError(
            f"{file} is of another run: its kind is {type(previous).__name__}, this recipe's is "
            f"{type(recipe).__name__}.",
            {"run.folder": folder},
            other_folder,
        )
    fields, previous_fields = _identity(recipe), _identity(previous)
    shared = sorted(fields.keys() & previous_fields.keys())  # those of an architecture only without weights
    differing = [name for name in shared if fields[name] != previous_fields[name]]
    if differing:
        use: list[dict] = [{name: previous_fields[name] for name in differing}, other_folder]
        model = os.path.join(folder, MODEL)
        if recipe.has_labels and tf.io.gfile.exists(model):  # to start from the trained weights
            use.append({**other_folder, "weights": model, "keep_head": True})
        raise RecipeError(f"{file} is of another run.", {name: fields[name] for name in differing}, use)


def _identity(recipe) -> dict[str, object]:
    """The fields that determine what is computed, by name; weights leave a few of an architecture."""
    weights = recipe.weights
    group = recipe.data.group
    if group and group.endswith(TABLE):  # a run may be moved with its table: `RunData.files` has its splits
        recipe = replace(recipe, data=replace(recipe.data, group=os.path.basename(group)))
    return {
        name: value
        for name, value in flat_fields(recipe).items()
        if not (name.startswith("run.") and name.removeprefix("run.") not in RUN_IDENTITY)
        and name not in {f"data.{location}" for location in DATA_LOCATIONS}
        and not (weights and name.startswith("architecture.") and name.partition(".")[2] not in USED_WITH_WEIGHTS)
    }


@dataclass(frozen=True)
class RunIdentity:
    """The identity of a run, in run.json beside recipe.json and in each checkpoint.

    Args:
        id: Of the run; a resumed run keeps it.
        class_names: Names of the classes, in the order of the outputs; none for training without labels.
        images: Number of images of each split that the recipe uses.
        process: Of this start of the run; the next one replaces it in run.json.
        files: See `RunData.files`.
        replaced: What replaces parts of the recipe, see `Replacements.fields`.
    """

    id: str
    class_names: tuple[str, ...]
    images: dict[str, int]
    process: str = ""
    files: str = ""
    replaced: dict[str, object] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "RunIdentity | None":
        """The identity of run.json or of a checkpoint; None if it is damaged."""
        try:
            values = json.loads(text)
            return cls(**{**values, "class_names": tuple(values["class_names"])})
        except (ValueError, TypeError, KeyError):
            return None

    def text(self) -> str:
        """The part that is the same for every start, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "process"})

    def check_checkpoint(self, text: str, path: str):
        """Raises ValueError unless a checkpoint, with the `text` of its run, is of this run and of this data."""
        began, folder = self.from_json(text), os.path.dirname(path)
        if began is None or began.id != self.id:
            raise ValueError(
                f"{path} is of another run: its id is {began.id if began else 'unknown'}, that of this folder is "
                f"{self.id}. Move the checkpoints of the other run out of the folder, or choose another folder."
            )
        began.check_replaced(self.replaced, folder)
        began.check_data(self, folder)

    def check_replaced(self, now: dict[str, object], folder: str, parts: Sequence[str] = PARTS):
        """Raises ValueError unless these parts are now replaced as when this run, that in the folder, began."""
        for name in {**self.replaced, **now}:
            there, here = (replaced.get(name, "that of the recipe") for replaced in (self.replaced, now))
            if there != here and name.partition(".")[0] in parts:
                raise ValueError(
                    f"The run in {folder} has another {name}: {there} (there), {here} (here). Resume it by keras_vit."
                    "recipes.train with the arguments of its beginning, or start a new run in another folder."
                )

    def check_data(self, now: "RunIdentity | RunData", folder: str):
        """Raises ValueError unless the data is now that with which this run, that in the folder, began."""
        differences = []
        if names := describe_difference(self.class_names, now.class_names):
            differences.append(f"the classes ({names})")
        for split in {**self.images, **now.images}:
            before, after = self.images.get(split, 0), now.images.get(split, 0)
            if before != after:
                differences.append(f"the images of {split!r} ({before:,} there, {after:,} here)")
        if not differences and self.files and now.files and self.files != now.files:
            differences.append("the files or their classes, of which there are as many")
        if differences:
            raise ValueError(
                f"The data is not that of the run in {folder}: it differs in {', '.join(differences)}. Restore the "
                "data, or start a new run in another folder."
            )
