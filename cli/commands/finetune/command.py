"""`keras-vit finetune`: from a folder of images to a classifier, without any other option."""

import csv
import json
import os
import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit.images import as_size
from keras_vit.intervals import percent
from keras_vit.recipes.recipe.errors import check_all
from keras_vit.weights.files import CONVERTED, METRICS, RECIPE, checkpoint_steps
from keras_vit_cli.commands.export.command import Export, Format
from keras_vit_cli.commands.report.command import REPORT, TABLE
from keras_vit_cli.commands.report.evaluation import report_run
from keras_vit_cli.inputs import OFFLINE, check_dataset, check_weights, load_default, process_variables
from keras_vit_cli.output_folder import check_replaceable
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.recipe_options import has_run, option
from keras_vit_cli.words import START, Group, OptionalOutput, corrupt_note

OFFLINE_NOTE = (
    f"Starting from {OFFLINE}, a small model of 32 x 32 pixels in the package, with which details are lost.\nFor other "
    "weights add --weights FILE"
)
FORMAT: Format = "dynamic-int8"  # requires no calibration
FILE = f"model-{FORMAT}.tflite"
EXPORTED = "exported"
CHECKED_IMAGES = 200
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


@dataclass(frozen=True)
class Finetune:
    """Train a classifier on a folder of images, and export it for phones.

    The folder has 30 to 5,000 images. The training starts from --weights; by default from AugReg's S/16, downloaded
    once (0.09 GB), or, where no download is possible, from the small model in the package. --output is the folder of
    the model and its files, by default runs/ and the name of the folder.

    The settings follow from the number of images and the speed of this machine. They are printed as the command of
    `keras-vit train` that repeats the training. The same command again resumes an interrupted run.

    Args:
        folder: Images in a folder for each class, /folder/<class>/<image>: about a fifth of them becomes
            the test set, and nothing is moved. Or with splits, /folder/train/<class>/<image> and /folder/test/...
        class_weight: "balanced" gives images of rare classes a higher weight in training.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    weights: Annotated[str | None, START] = None
    output: OptionalOutput = None
    class_weight: Literal["balanced"] | None = None
    group: Group = None
    preparation: Loading = AS_SAVED

    def run(self):
        """Trains, evaluates, exports, and prints what to do next."""
        _check_one_process()
        name = os.path.basename(os.path.abspath(self.folder))  # of "." and "..", too
        if not (self.output or name):
            raise ValueError(f"The folder {self.folder} has no name for runs/NAME. Pass --output FOLDER.")
        output = self.output or Path("runs") / name
        again = has_run(output)
        if again:
            check_same_run(
                self.folder,
                self.weights,
                self.preparation.fields(),
                output,
                self.class_weight,
                self.group,
                self.preparation.image_size,
            )
        else:
            self._check_new_run(output)
        from keras_vit.recipes.run_recipe import run_unless_finished

        recipe = previous_recipe(output) if again else self._new_recipe(output)
        metrics = run_unless_finished(replace(recipe, run=replace(recipe.run, resume=True)))
        file = export_checked(recipe, output)
        report_run(recipe, copies_warning(output), file)
        print_result(recipe, output, file, metrics)

    def _check_new_run(self, output: Path):
        check_all(
            lambda: check_dataset(f"folder:{self.folder}", converts=True),
            lambda: _check_replaceable(output),
            lambda: _check_no_export(output),
            lambda: check_weights(self.weights),
            self.preparation.fields,
        )

    def _new_recipe(self, output: Path):
        import tensorflow as tf

        from keras_vit.recipes.processes.workers import Workers
        from keras_vit.recipes.runs.folder import prepare_run_folder
        from keras_vit.recipes.runs.lock import run_lock
        from keras_vit_cli.commands.finetune.copies import FILE as COPIES
        from keras_vit_cli.commands.finetune.copies import GROUPS, write_copies, write_groups
        from keras_vit_cli.commands.finetune.plan import choose_recipe

        if self.weights:
            images, (weights, model) = check_all(lambda: self._open(output), self._load)
        else:  # there may be a download, which has to wait for the folder
            images, (weights, model) = self._open(output), self._load()
        if images.groups:
            images = replace(images, data=replace(images.data, group=str(output / GROUPS)))
        size = self.preparation.image_size
        recipe = choose_recipe(images, weights, model, output, self.class_weight, self._states_resize(), size)
        # Before the training, since the run may be resumed.
        if images.copies or images.groups or any((output / name).exists() for name in (COPIES, GROUPS)):
            with run_lock(str(output), Workers(tf.distribute.get_strategy())):
                prepare_run_folder(recipe)
                write_copies(output, images.copies)
                write_groups(output, images.groups)
        return recipe

    def _states_resize(self) -> bool:
        return "resize" in (self.preparation.fields() or {})

    def _open(self, output: Path):
        from keras_vit.recipes.configs.finetune import SMALL
        from keras_vit_cli.commands.finetune.conversion import convert_images
        from keras_vit_cli.commands.finetune.plan import open_images

        converted, notes = convert_images(self.folder, output)
        data = replace(SMALL.data, dataset=f"folder:{self.folder}", group=self.group, converted=converted)
        images = open_images(self.folder, data)
        return replace(images, notes=(*notes, *images.notes))

    def _load(self):
        """The name of the weights, and the model without a head."""
        load = partial(self.preparation.load, num_classes=0)
        if self.weights:
            return self.weights, load(self.weights)
        return load_default(load, lambda model: OFFLINE_NOTE)


def _check_one_process():
    """Raises ValueError if the environment names several processes: the speed of one machine decides the settings."""
    if names := process_variables():
        raise ValueError(
            f"keras-vit finetune trains in one process, but the environment has {' and '.join(names)}. Unset "
            f"{'it' if len(names) == 1 else 'them'}; keras-vit train can train in several."
        )


def _check_replaceable(output: Path):
    """See `check_replaceable`; a start that was interrupted leaves images that it has converted."""
    if not output.is_dir() or os.listdir(output) != [CONVERTED]:
        check_replaceable(output, RECIPE)


def _check_no_export(output: Path):
    """Raises ValueError if the folder of a new run has the exported files of another, which would remain."""
    if (folder := output / EXPORTED).exists():
        raise ValueError(f"{folder} is of an earlier run, whose model is missing. Remove it, or add {another(output)}")


def export_checked(recipe, output: Path) -> Path | None:
    """Writes the run's .tflite file, unless it is there, and prints how it compares with Keras.

    Returns its path, or None with Keras on JAX, which does not export.
    """
    import keras

    if keras.backend.backend() == "jax":
        return None
    folder = output / EXPORTED
    if not (folder / FILE).exists():
        print("\nExport to a .tflite file with 8-bit weights, compared with Keras on test images", flush=True)
        Export(
            str(output),
            output=folder,
            formats=(FORMAT,),
            dataset=recipe.data.dataset,
            group=recipe.data.group,
            split=recipe.data.test_split,
            check_images=CHECKED_IMAGES,
            max_corrupt=recipe.data.max_corrupt,
            keep_going=True,
        ).run()
    return folder / FILE


def print_result(recipe, output: Path, file: Path | None, metrics: dict):
    """Prints accuracy, files and the next commands."""
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.data.model_classes import class_counts
    from keras_vit.recipes.evaluation.predictions import read_predictions

    data, run = recipe.data, shlex.quote(str(output))
    evaluated = f"--dataset {shlex.quote(data.dataset)} --split {data.test_split}"
    if data.group:
        evaluated += f" --group {shlex.quote(data.group)}"
    test_images = metrics["images"]  # without those that cannot be decoded
    dataset = open_dataset(data)
    counts = listed = class_counts(dataset, data.test_split)
    accuracy = f"top-1 {percent(round(metrics['top1'] * test_images), test_images)}"
    if (output / TABLE).is_file():
        predictions = read_predictions(output / TABLE)
        accuracy, counts = f"top-1 {predictions.describe_accuracy()}", predictions.correct.sum(0)
    largest = f"always {dataset.class_names[counts.argmax()]!r} would be {100 * counts.max() / counts.sum():.1f} %"
    skip = f" --max-corrupt {data.max_corrupt:g}" if test_images < listed.sum() else ""
    tflite = "For a .tflite file repeat this command with KERAS_BACKEND=tensorflow: nothing is trained again."
    if file:
        tflite = f"{file}  for phones, {file.stat().st_size / 1e6:.1f} MB"
    print(
        f"""
{accuracy} of the test set ({data.test_split!r}); {largest}
{output / "model.keras"}  the model, {output / "model_card.md"} its card
{tflite}
{output / REPORT}  the test images: which are wrong, and more

Next:
    keras-vit classify IMAGE --model {run}
    keras-vit evaluate {run} {evaluated} --per-class{skip}
    keras-vit inspect {run} --images {shlex.quote(data.dataset.removeprefix("folder:"))} --output attention.html
    keras-vit export {run} {evaluated}{skip} --formats web --output {shlex.quote(str(output / "web"))}"""
    )
    for warning in copies_warning(output):
        print(f"Warning: {warning}")
    if skip:
        print(corrupt_note(data.max_corrupt))


def copies_warning(output: Path) -> list[str]:
    """What to say of copies of training images in the test set, if there are some."""
    from keras_vit_cli.commands.finetune.copies import FILE as COPIES
    from keras_vit_cli.commands.finetune.copies import count_copies

    if not (copies := count_copies(output)):
        return []
    what = f"{copies:,} test images are copies of training images, or nearly so ({output / COPIES})"
    return [f"{what}: the accuracy is too high."]


def check_same_run(
    folder: Path,
    weights: str | None,
    preparation: dict | None,
    output: Path,
    class_weight: str | None = None,
    group: str | None = None,
    image_size: int | tuple[int, int] | None = None,
):
    """Checks that a command asks for the run that its output folder has: images, weights, preparation and the others.

    Raises ValueError for another run, and FileNotFoundError for weights that no longer exist.
    """
    try:
        recipe = json.loads((output / RECIPE).read_text("utf-8"))
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
    if image_size and as_size(image_size) != as_size(data.get("image_size", image_size)):
        had.append(f"with {option('image_size', data['image_size'])}")
        received.append(option("image_size", image_size))
    if class_weight not in (None, recipe.get("class_weight")):
        had.append("without --class-weight")
        received.append(f"--class-weight {class_weight}")
    if group not in (None, data.get("group")) and not _keeps_together(output, images, group):
        had.append(f"with --group {shlex.quote(data['group'])}" if data.get("group") else "without --group")
        received.append(f"--group {shlex.quote(group)}")
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


def _keeps_together(output: Path, images: Path, group: str) -> bool:
    """Whether the run's own table of groups, of copies, keeps the images of each of these groups together."""
    from keras_vit.recipes.data.image_folder import groups_of
    from keras_vit_cli.commands.finetune.copies import GROUPS

    if not (output / GROUPS).is_file():
        return False
    with (output / GROUPS).open(newline="", encoding="utf-8") as file:
        table = {row["file"]: row["group"] for row in csv.DictReader(file)}
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
