"""Folds of `keras-vit finetune`: each image is predicted once, by a model that saw neither it nor its group."""

import csv
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from keras_vit.atomic_write import new_files, write_file
from keras_vit.messages import first_names
from keras_vit.recipes.configs.small_folder import shortened
from keras_vit.recipes.recipe import Supervised
from keras_vit.weights.files import METRICS, MODEL
from keras_vit_cli.commands.report.command import FOLDS, OF_FOLDS, REPORT, TABLE, print_written

MISLABELED = "mislabeled.csv"
UNEQUAL = 1.5  # times as many images in the largest fold as in the smallest


def assign_folds(images: list[tuple[str, str]], groups: Mapping[str, str], folds: int) -> dict[str, str]:
    """The fold of each image (class, file): "fold1" and so on, with as equal parts of each class as groups allow.

    Raises:
        ValueError: There are fewer groups, or images of each class, than folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    names = [groups.get(file, file) for _, file in images]
    most = min(len(set(names)), max(Counter(class_name for class_name, _ in images).values()))
    if not 2 <= folds <= most:
        what = "groups, or images of a class" if groups else "images of a class"
        raise ValueError(f"Expected at least 2 folds, and not more than {what}: {most:,}. Received: --folds {folds}")
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=0)
    fold_of: dict[str, str] = {}
    with warnings.catch_warnings():  # of classes that have fewer images than folds
        warnings.simplefilter("ignore", UserWarning)
        parts = splitter.split(images, [class_name for class_name, _ in images], names)
        for number, (_, rows) in enumerate(parts, 1):
            fold_of |= {images[row][1]: f"fold{number}" for row in rows}
    return {file: fold_of[file] for _, file in images}


def notes_on_folds(images: list[tuple[str, str]], groups: Mapping[str, str], folds: Mapping[str, str]) -> Iterator[str]:
    """Yields what groups of images (class, file) mean for folds: classes of one group, and unequal sizes."""
    of_class: dict[str, set[str]] = {}
    for name, file in images:
        of_class.setdefault(name, set()).add(groups.get(file, file))
    if single := [name for name, names in of_class.items() if len(names) == 1]:
        yield (
            f"All images of {first_names(single)} are in one group, and so in one fold: the model that is tested on "
            "them was trained without the class. Add images of other groups."
        )
    sizes = sorted(Counter(folds.values()).values())
    if sizes[-1] > UNEQUAL * sizes[0]:
        yield f"The folds have {sizes[0]:,} to {sizes[-1]:,} images, since a group is in one fold."


def others(train_split: str, split: str) -> str:
    """The parts of a split, joined by +, but one."""
    return "+".join(part for part in train_split.split("+") if part != split)


def fold_recipes(recipe: Supervised) -> dict[str, Supervised]:
    """The run of each fold, for the recipe that trains on all of them; {} for one that has a test set."""
    data = recipe.data
    if data.test_split:
        return {}
    folder = Path(recipe.run.folder) / FOLDS  # type: ignore[arg-type]  # this command always sets it
    names = data.train_split.split("+")
    recipe = shortened(recipe, 1 - 1 / len(names))
    return {
        name: replace(
            recipe,
            data=replace(data, train_split=others(data.train_split, name), test_split=name),
            run=replace(recipe.run, folder=str(folder / name), resume=True),
        )
        for name in names
    }


def run_folds(recipes: Mapping[str, Supervised], output: Path) -> dict[str, Exception]:
    """Trains and tests the folds that are not done, and writes all predictions into one table in the run's folder.

    A fold that fails does not end the others.

    Returns:
        The errors by fold.
    """
    errors: dict[str, Exception] = {}
    for name, recipe in recipes.items():
        if not (Path(recipe.run.folder) / TABLE).is_file():  # type: ignore[arg-type]
            try:
                _run_fold(recipe)
            except Exception as error:  # of any kind: an hour of the other folds is not lost
                print(f"{name} failed: {error}", file=sys.stderr)
                errors[name] = error
    done = [table for table in _tables(recipes) if table.is_file()]
    if not done:
        raise next(iter(errors.values()))
    _join(done, output / TABLE)
    return errors


def _run_fold(recipe):
    """Trains a fold and writes its predictions, after which its weights have no use."""
    import keras_vit
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.run_recipe import run_unless_finished
    from keras_vit_cli.commands.report.evaluation import predict

    folder = Path(recipe.run.folder)
    if (folder / METRICS).exists() and not (folder / MODEL).exists():  # its predictions were deleted
        shutil.rmtree(folder)
    run_unless_finished(recipe)
    predict(keras_vit.load(folder / MODEL), recipe.data, folder / TABLE, open_dataset(recipe.data))
    for file in (folder / MODEL, *folder.glob("step-*")):
        file.unlink()


def _join(tables: list[Path], path: Path):
    """Writes the lines of all tables, sorted by file; their columns are the same."""
    lines = []
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        lines += rows
    with new_files(path) as (new,), new.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *sorted(lines)])


def report_folds(recipe: Supervised, folds: Mapping[str, Supervised], output: Path, notes: Sequence[str]):
    """Writes the report on the predictions of all folds, and states their accuracy in the card of the final model."""
    import keras_vit
    from keras_vit.recipes.evaluation.predictions import read_predictions
    from keras_vit.recipes.run_recipe import CARD, run_card
    from keras_vit_cli.commands.report.report import write_report

    predictions = read_predictions(output / TABLE)
    of_folds = [read_predictions(table) for table in _tables(folds) if table.is_file()]
    accuracies = ", ".join(f"{100 * fold.right.mean():.1f}" for fold in of_folds)
    measured = f"{OF_FOLDS} Top-1 of each fold: {accuracies} %."
    write_report(
        output / REPORT,
        f"{len(of_folds)} folds of {recipe.data.dataset}",
        predictions,
        notes=[measured, *notes],
        run=output,
        pixel_range=recipe.data.pixel_range,
    )
    print_written(output / REPORT)
    _list_label_issues(predictions, output / MISLABELED)
    metrics = {"top1": float(predictions.right.mean()), "images": len(predictions.files)}
    card = run_card(keras_vit.load(output / MODEL), recipe, metrics, measured=measured, warnings=notes)
    write_file(output / CARD, card)


def _list_label_issues(predictions, path: Path):
    """Writes the images whose label the folds doubt, and prints the first; without any, there is no file."""
    from keras_vit.recipes.evaluation.label_issues import find_label_issues

    rows = find_label_issues(predictions).tolist()
    if not rows:
        path.unlink(missing_ok=True)
        return
    names, labels = predictions.class_names, predictions.correct.argmax(-1)
    with new_files(path) as (new,), new.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "label", "prediction", "probability of the label"])
        for row in rows:
            probability = f"{predictions.probabilities[row, labels[row]]:.3g}"
            table.writerow([predictions.files[row], names[labels[row]], names[predictions.predicted[row]], probability])
    are = "image is" if len(rows) == 1 else "images are"
    files = first_names([predictions.files[row] for row in rows])
    print(f"{len(rows):,} {are} possibly mislabeled, the likeliest first in {path}: {files}")


def _tables(folds) -> list[Path]:
    return [Path(recipe.run.folder) / TABLE for recipe in folds.values()]
