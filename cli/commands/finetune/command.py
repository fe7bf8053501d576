"""`keras-vit finetune`: from a folder of images to a classifier, without any other option."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit.intervals import percent
from keras_vit.recipes.recipe.errors import check_all
from keras_vit.weights.files import CONVERTED, RECIPE
from keras_vit_cli.commands.export.command import Export, Format
from keras_vit_cli.commands.finetune.earlier_run import (
    ORIGIN,
    START_MODEL,
    TRAINED,
    check_trained,
    compare_with_earlier,
    continues,
    next_output,
    origin,
    run_of,
    unknown_images,
    write_card,
    write_start,
    write_trained,
)
from keras_vit_cli.commands.finetune.previous_run import TABLES, another, check_same_run, previous_recipe
from keras_vit_cli.commands.report.command import FOLDS, REPORT, TABLE
from keras_vit_cli.commands.report.evaluation import report_run
from keras_vit_cli.inputs import OFFLINE, check_dataset, check_weights, load_default, process_variables
from keras_vit_cli.output_folder import check_replaceable
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.process import without_native_logs
from keras_vit_cli.recipe_options import has_run
from keras_vit_cli.words import START, Group, OptionalOutput, corrupt_note

OFFLINE_NOTE = (
    f"Starting from {OFFLINE}, a small model of 32 x 32 pixels in the package, with which details are lost.\nFor other "
    "weights add --weights FILE"
)
FORMAT: Format = "dynamic-int8"  # requires no calibration
FILE = f"model-{FORMAT}.tflite"
EXPORTED = "exported"
CHECKED_IMAGES = 200


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
        folds: Train so many times first, such as 5, each time without another part of the images, which tests
            that model: all images count, not a fifth of them. The model of this run is then trained on all.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    weights: Annotated[str | None, START] = None
    output: OptionalOutput = None
    class_weight: Literal["balanced"] | None = None
    group: Group = None
    preparation: Loading = AS_SAVED
    folds: int | None = None

    def run(self):
        """Trains, evaluates, exports, and prints what to do next."""
        _check_one_process()
        if self.folds is not None and self.folds < 2:
            raise ValueError(f"Expected --folds of at least 2, such as 5. Received: {self.folds}")
        name = os.path.basename(os.path.abspath(self.folder))  # of "." and "..", too
        if not (self.output or name):
            raise ValueError(f"The folder {self.folder} has no name for runs/NAME. Pass --output FOLDER.")
        output = self.output or next_output(Path("runs") / name, self.weights)
        again = has_run(output) or any(map(has_run, output.glob(f"{FOLDS}/*")))
        if again:
            check_same_run(
                self.folder,
                self.weights,
                self.preparation,
                output,
                self.class_weight,
                self.group,
                self.folds,
            )
        else:
            self._check_new_run(output)
        from keras_vit.recipes.run_recipe import run_unless_finished
        from keras_vit_cli.commands.finetune.copies import copies_warning
        from keras_vit_cli.commands.finetune.folds import fold_recipes, report_folds, run_folds

        recipe = previous_recipe(output) if again else self._new_recipe(output)
        folds = fold_recipes(recipe)
        if folds:
            check_trained(output)
        errors = run_folds(folds, output) if folds else {}
        metrics = run_unless_finished(replace(recipe, run=replace(recipe.run, resume=True)))
        with without_native_logs():
            file = export_checked(recipe, output)
            if folds:
                report_folds(recipe, folds, output, copies_warning(output))
            else:
                report_run(recipe, lambda: copies_warning(output), file)
                write_card(output, recipe, metrics, copies_warning(output))
            print_result(recipe, output, file, metrics, copies_warning(output))
            self._compare_with_earlier(recipe, output)
        if errors:
            raise ValueError(
                f"{len(errors)} of {len(folds)} folds failed, and their images do not count: {', '.join(errors)}. "
                "Their messages are above. The same command tries them again."
            )

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

        from keras_vit.recipes.configs.finetune import SMALL
        from keras_vit.recipes.processes.workers import Workers
        from keras_vit.recipes.runs.folder import prepare_run_folder
        from keras_vit.recipes.runs.lock import run_lock
        from keras_vit_cli.commands.finetune.copies import FILE as COPIES
        from keras_vit_cli.commands.finetune.copies import write_copies
        from keras_vit_cli.commands.finetune.images import image_files
        from keras_vit_cli.commands.finetune.plan import choose_recipe

        if self.weights:
            images, (weights, model) = check_all(lambda: self._open(output), self._load)
        else:  # there may be a download, which has to wait for the folder
            images, (weights, model) = self._open(output), self._load()
        if images.table:
            images = replace(images, data=replace(images.data, group=str(output / TABLES[bool(self.folds)])))
        keeps = continues(model, images.dataset.class_names)
        if keeps and not run_of(self.weights):
            images = images.with_notes(unknown_images(weights))
        has_start = keeps and model.class_names != images.dataset.class_names
        recipe = choose_recipe(
            images,
            str(output / START_MODEL) if has_start else weights,
            model.with_head(0, name=model.name),
            output,
            replace(SMALL, class_weight=self.class_weight, keep_head=keeps),
            self._states_resize(),
            self.preparation.image_size,
        )
        # Before the training, since the run may be resumed.
        with run_lock(str(output), Workers(tf.distribute.get_strategy())):
            prepare_run_folder(recipe)
            for file in (*TABLES, COPIES, START_MODEL, ORIGIN, TRAINED):  # of an earlier start, with other images
                (output / file).unlink(missing_ok=True)
            if images.copies:
                write_copies(output, images.copies)
            if images.table:
                images.table.write(Path(images.data.group))
            write_trained(output, image_files(images.dataset, images.data.train_split))
            if has_start:
                write_start(output, weights, model, recipe, images.dataset)
        return recipe

    def _compare_with_earlier(self, recipe, output: Path):
        """Prints what the model of the run that this one continues reaches on its test images."""
        if not recipe.keep_head or not (run := run_of(origin(output, recipe.weights))) or not recipe.data.test_split:
            return
        earlier = self.preparation.load(str(run))
        compare_with_earlier(recipe, earlier, output, str(run))

    def _states_resize(self) -> bool:
        return "resize" in (self.preparation.fields() or {})

    def _open(self, output: Path):
        from keras_vit.recipes.configs.finetune import SMALL
        from keras_vit_cli.commands.finetune.images import open_images
        from keras_vit_cli.conversion import convert_images

        converted, notes = convert_images(self.folder, output)
        data = replace(SMALL.data, dataset=f"folder:{self.folder}", group=self.group, converted=converted)
        images = open_images(self.folder, data, self.folds, run_of(self.weights))
        return replace(images, notes=(*notes, *images.notes))

    def _load(self):
        """The name of the weights, and the model."""
        load = self.preparation.load
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
        split = recipe.data.test_split or recipe.data.train_split
        on = "test images" if recipe.data.test_split else "training images: the agreement counts, not the accuracy"
        print(f"\nExport to a .tflite file with 8-bit weights, compared with Keras on {on}", flush=True)
        Export(
            str(output),
            output=folder,
            formats=(FORMAT,),
            dataset=recipe.data.dataset,
            group=recipe.data.group,
            split=split,
            check_images=CHECKED_IMAGES,
            max_corrupt=recipe.data.max_corrupt,
            keep_going=True,
        ).run()
    return folder / FILE


def print_result(recipe, output: Path, file: Path | None, metrics: dict, warnings: Sequence[str]):
    """Prints accuracy, files and the next commands."""
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.data.model_classes import class_counts
    from keras_vit.recipes.evaluation.predictions import read_predictions

    data, run = recipe.data, shlex.quote(str(output))
    split = data.test_split or data.train_split
    evaluated = f"--dataset {shlex.quote(data.dataset)} --split {split}"
    if data.group:
        evaluated += f" --group {shlex.quote(data.group)}"
    dataset = open_dataset(data)
    counts = listed = class_counts(dataset, split)
    if (output / TABLE).is_file():
        predictions = read_predictions(output / TABLE)
        accuracy, counts = f"top-1 {', '.join(predictions.describe_accuracy())}", predictions.correct.sum(0)
        balanced = f"; balanced accuracy {100 * predictions.balanced_accuracy:.1f} %"
        test_images = len(predictions.files)  # without those that cannot be decoded
    else:
        test_images, balanced = metrics["images"], ""
        accuracy = f"top-1 {percent(round(metrics['top1'] * test_images), test_images)}"
    of = f"of the test set ({split!r})" if data.test_split else "in folds, each by a model that was trained without it"
    largest = f"always {dataset.class_names[counts.argmax()]!r} would be {100 * counts.max() / counts.sum():.1f} %"
    skip = f" --max-corrupt {data.max_corrupt:g}" if test_images < listed.sum() else ""
    tflite = "For a .tflite file repeat this command with KERAS_BACKEND=tensorflow: nothing is trained again."
    if file:
        tflite = f"{file}  for phones, {file.stat().st_size / 1e6:.1f} MB"
    print(
        f"""
{accuracy} {of}{balanced}; {largest}
{output / "model.keras"}  the model, {output / "model_card.md"} its card
{tflite}
{output / REPORT}  the test images: which are wrong, and more

Next:
    keras-vit classify IMAGE --model {run}
{f"    keras-vit evaluate {run} {evaluated} --per-class{skip}" if data.test_split else f"    keras-vit report {run}"}
    keras-vit inspect {run} --images {shlex.quote(data.dataset.removeprefix("folder:"))} --output attention.html
    keras-vit export {run} {evaluated}{skip} --formats web --output {shlex.quote(str(output / "web"))}"""
    )
    for warning in warnings:
        print(f"Warning: {warning}")
    if skip:
        print(corrupt_note(data.max_corrupt))
