"""A run's folder: which run it has, by its recipe, its id and its data; and its checkpoints."""

import json
import os
import uuid
from dataclasses import asdict, dataclass, field, replace

import tensorflow as tf

from keras_vit.class_names import describe_difference
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import USED_WITH_WEIGHTS, Recipe
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.file import read_run, write_recipe
from keras_vit.recipes.recipe.values import flat_fields
from keras_vit.recipes.remote_files import error_summary, write_file
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.weights.files import MODEL, RECIPE, RUN, are_of_run, checkpoint_steps

# Fields of `run` that determine what is computed, and fields of `data` that do not: a resumed run may change the latter
# and all others of `run`.
RUN_IDENTITY = ("seed", "precision", "early_stopping_patience", "restore_best_weights", "monitor")
DATA_LOCATIONS = ("data_dir", "service", "converted")
VARIABLE = "run/.ATTRIBUTES/VARIABLE_VALUE"  # in a checkpoint, see `Checkpoints`


def prepare_run_folder(recipe: Recipe, chief: bool = True):
    """Creates a recipe's folder and writes recipe.json, or checks that the run in it is resumed by this recipe."""
    folder = required_folder(recipe)
    try:
        tf.io.gfile.makedirs(folder)
        if are_of_run(list_folder(folder)):
            check_resumable(recipe)
        elif chief:
            write_recipe(recipe, os.path.join(folder, RECIPE))
    except tf.errors.OpError as error:
        raise OSError(
            f"The run's folder {folder} cannot be used: {error_summary(error)}. Check the permissions and the free "
            "space, or choose another folder."
        ) from error


def required_folder(recipe: Recipe) -> str:
    """`run.folder` of a recipe; raises RecipeError if it is None."""
    if recipe.run.folder is None:
        raise RecipeError("A folder for the results is required.", {"run.folder": None}, {"run.folder": "runs/x"})
    return recipe.run.folder


def check_resumable(recipe: Recipe):
    """Raises RecipeError unless the run in the recipe's folder is of this recipe and `run.resume` is set."""
    folder = required_folder(recipe)
    file, other_folder = os.path.join(folder, RECIPE), {"run.folder": f"{folder}-2"}
    if not recipe.run.resume:
        raise RecipeError(
            f"The folder {folder} already contains a run.", {"run.folder": folder}, [{"run.resume": True}, other_folder]
        )
    previous = read_run(folder)
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


def find_checkpoints(folder) -> list[str]:
    """Paths of the checkpoints in a folder, without ".index", newest first."""
    return [os.path.join(folder, f"step-{step}") for step in checkpoint_steps(list_folder(folder))]


def list_folder(folder) -> list[str]:
    """Names in a folder, local or on gs://; none if it does not exist."""
    try:
        tf.io.gfile.stat(folder)  # `exists` and `isdir` also return False if a bucket does not answer
    except tf.errors.NotFoundError:
        return []
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]


def _identity(recipe) -> dict[str, object]:
    """The fields that determine what is computed, by name; weights leave a few of an architecture."""
    weights = recipe.weights
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

    def text(self) -> str:
        """The part that is the same for every start, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "process"})

    def check_checkpoint(self, text: str, path: str):
        """Raises ValueError unless a checkpoint, with the `text` of its run, is of this run and of this data."""
        other = _from_json(text)
        if other is None or other.id != self.id:
            raise ValueError(
                f"{path} is of another run: its id is {other.id if other else 'unknown'}, that of this folder is "
                f"{self.id}. Move the checkpoints of the other run out of the folder, or choose another folder."
            )
        self.check_data(other, os.path.dirname(path))

    def check_data(self, other: "RunIdentity", folder: str):
        """Raises ValueError unless data and replacements are those with which the run in the folder began, `other`."""
        for name in {**other.replaced, **self.replaced}:
            there, here = (identity.replaced.get(name, "that of the recipe") for identity in (other, self))
            if there != here:
                raise ValueError(
                    f"The run in {folder} has another {name}: {there} (there), {here} (here). Resume it by keras_vit."
                    "recipes.train with the arguments of its beginning, or start a new run in another folder."
                )
        differences = []
        if names := describe_difference(other.class_names, self.class_names):
            differences.append(f"the classes ({names})")
        for split in {**other.images, **self.images}:
            before, now = other.images.get(split, 0), self.images.get(split, 0)
            if before != now:
                differences.append(f"the images of {split!r} ({before:,} there, {now:,} here)")
        if not differences and self.files and other.files and self.files != other.files:
            differences.append("the files or their classes, of which there are as many")
        if differences:
            raise ValueError(
                f"The data is not that of the run in {folder}: it differs in {', '.join(differences)}. Restore the "
                "data, or start a new run in another folder."
            )

    def check_owner(self, folder: str):
        """Raises OSError if another process has started this run since, which a lock cannot prevent on gs://."""
        try:
            current = read_identity(folder)
        except tf.errors.OpError:  # the checkpoint that is written next reports it
            return
        if current is not None and current.process != self.process:
            raise OSError(
                f"Another process has started a run in {folder}, so this one ends without saving. Train in one "
                "process at a time, or choose another folder: set run.folder."
            )


def begin_run(folder: str, data: RunData, workers: Workers, replaced: dict[str, object] | None = None) -> RunIdentity:
    """Compares a run with that of its folder, which must be locked, if there is one, and writes run.json.

    If run.json is missing or damaged, for example by a power failure, the newest checkpoint has the id.

    Raises:
        ValueError: The run in the folder began with other data, or with another optimizer, loss or augmentation.
    """
    current = RunIdentity(uuid.uuid4().hex, data.class_names, data.images, uuid.uuid4().hex, data.files, replaced or {})
    failure = None
    if workers.chief:
        try:
            is_resumed = are_of_run(list_folder(folder))
            if is_resumed and (previous := read_identity(folder) or _of_newest_checkpoint(folder)):
                current.check_data(previous, folder)
                current = replace(current, id=previous.id)
            write_file(os.path.join(folder, RUN), json.dumps(asdict(current), indent=2) + "\n")
        except (ValueError, OSError) as error:
            failure = error
    if workers.any(failure is not None):
        raise failure or ValueError(f"The chief worker cannot resume the run in {folder}: see its message.")
    return current if workers.chief else read_identity(folder) or current


def check_unchanged(folder, data: RunData):
    """Raises ValueError if classes, image counts or files changed since the run in a folder was started."""
    if began := read_identity(folder):
        now = replace(began, class_names=data.class_names, images=data.images, files=data.files)
        now.check_data(began, os.fspath(folder))


def read_identity(folder) -> RunIdentity | None:
    """The identity in a folder's run.json; None if the file is missing or damaged."""
    try:
        with tf.io.gfile.GFile(os.path.join(folder, RUN)) as content:
            return _from_json(content.read())
    except (tf.errors.NotFoundError, UnicodeDecodeError):
        return None


def _of_newest_checkpoint(folder):
    for path in find_checkpoints(folder):
        try:
            return _from_json(tf.train.load_variable(path, VARIABLE).decode())
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError):  # damaged: `Checkpoints` reports it
            continue
    return None


def _from_json(text):
    try:
        values = json.loads(text)
        return RunIdentity(**{**values, "class_names": tuple(values["class_names"])})
    except (ValueError, TypeError, KeyError):
        return None
