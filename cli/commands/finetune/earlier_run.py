"""A run that `keras-vit finetune` continues after images or classes were added: its images, its head, its accuracy."""

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from keras_vit.messages import first_names
from keras_vit.weights.files import MODEL, RECIPE

START_MODEL = "start.keras"  # with a head of the new classes, in the folder of the run
ORIGIN = "start.json"
TRAINED, TRAINED_COLUMNS = "trained_images.csv", ("file", "sha256")
FEWEST_KNOWN = 0.5  # part of the classes of weights that a folder has, if it continues their training
PENALTY = 10.0  # of the squared weights, as 1 / C of scikit-learn's logistic regression


def run_of(weights: str | None) -> Path | None:
    """The local folder of the run that weights are the model of; None for others."""
    path = Path(weights or "")
    folder = path.parent if path.name == MODEL else path
    return folder if weights and (folder / RECIPE).is_file() else None


def next_output(output: Path, weights: str | None) -> Path:
    """The default folder of a run that continues another: with its name and the next number, such as photos-2."""
    run = run_of(weights)
    if not run or run.absolute().parent != output.absolute().parent:
        return output
    match = re.fullmatch(re.escape(output.name) + r"(?:-(\d+))?", run.name)
    return output.with_name(f"{output.name}-{int(match[1] or 1) + 1}") if match else output


def write_trained(output: Path, files: Sequence[str]):
    """Lists the images that a run is trained on, and their contents, in its folder."""
    rows = ([file, _digest(file)] for file in files)
    with (output / TRAINED).open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([TRAINED_COLUMNS, *rows])


def _read_trained(run: Path) -> dict[str, str]:
    """The digests of the images that a run was trained on, by file; {} if it has no list."""
    if not (run / TRAINED).is_file():
        return {}
    with (run / TRAINED).open(newline="", encoding="utf-8") as table:
        return dict(list(csv.reader(table))[1:])


def check_trained(run: Path):
    """Raises ValueError if images have changed since a run began, which its folds would then mix."""
    listed = _read_trained(run)
    changed = [file for file, digest in listed.items() if not Path(file).is_file() or _digest(file) != digest]
    if changed:
        raise ValueError(
            f"{len(changed):,} of the {len(listed):,} images of the run in {run} are gone or have changed: "
            f"{first_names(changed)}. Restore them, or start a new run: add --output FOLDER"
        )


def trained_images(run: Path, path: str, images: Sequence[str]) -> dict[str, str]:
    """Those of a folder's images that a run was trained on, by name or by content, and the names that they had there.

    Raises ValueError or OSError if that is unknown.
    """
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.recipe.file import read_run

    digests = _read_trained(run)
    if not digests:  # a run of keras-vit train: its images as they are now
        data = read_run(run).data
        dataset = open_dataset(data)
        files = [name.decode() for name, *_ in dataset.read(data.train_split).as_numpy_iterator()]
        digests = {file: _digest(file) for file in files if Path(file).is_file()}
        if len(digests) < len(files):
            raise ValueError(f"{len(files) - len(digests):,} of its {len(files):,} images are no files")
    names = {Path(file).resolve(): file for file in digests}
    contents = {digest: file for file, digest in digests.items()}
    places = {file: Path(path, file) for file in images}
    trained = {file: names.get(place.resolve()) or contents.get(_digest(place)) for file, place in places.items()}
    return {file: name for file, name in trained.items() if name}


def unknown_images(weights) -> str:
    """What to say of weights that continue if it is unknown what they were trained on."""
    return (
        f"It is unknown which images {weights} was trained on. If test images are among them, the accuracy is too high."
    )


def _digest(file) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def keep_trained(
    splits: Mapping[str, list[tuple[str, str]]], groups: Mapping[str, str], trained: Iterable[str]
) -> dict[str, str]:
    """The split of each file after groups with an image that was trained on went to "train"; {} if none moved."""
    held = {groups.get(file, file) for file in trained}
    before = {file: split for split, images in splits.items() for _, file in images}
    after = {file: "train" if groups.get(file, file) in held else split for file, split in before.items()}
    return after if after != before else {}


def continues(model, class_names: Sequence[str]) -> bool:
    """Whether a model's head has rows for classes of a folder, which are kept."""
    names = model.class_names or ()
    known = set(names).intersection(class_names)
    has_one_layer = not getattr(model.config, "representation_size", None) and not getattr(
        model, "head_distillation", 0
    )
    return bool(known) and len(known) >= FEWEST_KNOWN * len(names) and has_one_layer and not model.multi_label


def with_classes(model, class_names: Sequence[str], absent_bias: float = 0.0):
    """The model with a head of other classes: rows of known ones, and zeros with a bias for the others."""
    changed = model.with_head(len(class_names), class_names, name=model.name)
    kernel, bias = (np.array(value) for value in changed.head.get_weights())  # (D, C), (C,)
    bias[:] = absent_bias
    old_kernel, old_bias = model.head.get_weights()
    for row, name in enumerate(class_names):
        if name in model.class_names:
            old = model.class_names.index(name)
            kernel[:, row], bias[row] = old_kernel[:, old], old_bias[old]
    changed.head.set_weights([kernel, bias])
    return changed


def fit_new_rows(model, is_new: np.ndarray, features: np.ndarray, labels: np.ndarray):
    """Fits the rows of new classes by logistic regression on frozen features, beside the others, which are kept.

    Args:
        model: Of C classes.
        is_new: (C,) bool.
        features: (n, D), inputs of the head.
        labels: (n,) integers below C.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    kernel, bias = (np.array(value, "float64") for value in model.head.get_weights())
    features, rows = features.astype("float64"), np.arange(len(labels))
    columns = np.flatnonzero(is_new)

    def loss_and_gradient(values):
        values = values.reshape(-1, len(columns))  # (D + 1, new)
        kernel[:, columns], bias[columns] = values[:-1], values[-1]
        log_probabilities = log_softmax(features @ kernel + bias, axis=-1)  # (n, C)
        errors = np.exp(log_probabilities)
        errors[rows, labels] -= 1
        errors = errors[:, columns]
        gradient = np.vstack([features.T @ errors + PENALTY * values[:-1], errors.sum(0)])
        penalty = PENALTY / 2 * (values[:-1] ** 2).sum()
        return penalty - log_probabilities[rows, labels].sum(), gradient.ravel()

    start = np.zeros((features.shape[1] + 1) * len(columns))
    loss_and_gradient(minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 10_000}).x)
    model.head.set_weights([kernel, bias])


def write_start(output: Path, weights: str, trained, recipe, dataset):
    """Writes the model to start from into the folder of the run: known rows are kept, new ones fitted."""
    from keras_vit.atomic_write import write_file
    from keras_vit.recipes.data.transforms import evaluation_preprocessing
    from keras_vit.recipes.evaluation.features import extract_features

    names = dataset.class_names
    start = with_classes(trained, names)
    is_new = np.array([name not in trained.class_names for name in names])
    new = first_names([name for name, new in zip(names, is_new) if new])
    if is_new.any():
        size = recipe.data.input_size
        model = start if start.image_size == size else start.resized(size, name=start.name)
        features, labels = extract_features(
            model,
            dataset,
            recipe.data.train_split,
            max_corrupt=1.0,
            preprocessing=evaluation_preprocessing(recipe.data),
        )
        fit_new_rows(start, is_new, features, labels)
        fitted = f", that of {new} fitted to the features of its images"
    else:
        fitted = ""
    start.save(output / START_MODEL)
    write_file(output / ORIGIN, json.dumps({"weights": weights}) + "\n")
    print(f"The head keeps what {weights} knows of {(~is_new).sum()} classes{fitted} ({output / START_MODEL}).\n")


def origin(output: Path, weights: str) -> str:
    """The weights that a run in a folder was started from by its command; `weights` are those of its recipe."""
    file = output / ORIGIN
    return json.loads(file.read_text("utf-8"))["weights"] if file.is_file() else weights


def write_card(output: Path, recipe, metrics: dict, warnings: Sequence[str]):
    """Writes the model card again with the weights that a run's start was made from, and with warnings."""
    import keras_vit
    from keras_vit.atomic_write import write_file
    from keras_vit.recipes.run_recipe import CARD, run_card

    start, began = origin(output, recipe.weights), None
    if start != recipe.weights:
        began = f"Fine-tuned here from `{start}`, whose head got the new classes."
    if began or warnings:
        card = run_card(keras_vit.load(output / MODEL), recipe, metrics, began, warnings=warnings)
        write_file(output / CARD, card)


def compare_with_earlier(recipe, earlier, output: Path, name: str):
    """Prints what an earlier model reaches on the test images of a run; images of new classes it has wrong."""
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.evaluation.predictions import compare_predictions, read_predictions
    from keras_vit_cli.commands.finetune.copies import read_copies
    from keras_vit_cli.commands.report.command import TABLE
    from keras_vit_cli.commands.report.evaluation import predict
    from keras_vit_cli.commands.report.sections import describe_comparison

    dataset = open_dataset(recipe.data)
    known = with_classes(earlier, dataset.class_names, absent_bias=-1e9)
    table = output / f"earlier-{TABLE}"
    before, after = predict(known, recipe.data, table, dataset), read_predictions(output / TABLE)
    comparison = compare_predictions(before, after)
    new = before.correct[:, [label not in earlier.class_names for label in dataset.class_names]].sum()
    unknown = f"; {new:,} {'is' if new == 1 else 'are'} of classes that it does not have" if new else ""
    if copies := len(read_copies(output)):
        unknown += f"; {copies:,} {'is a copy' if copies == 1 else 'are copies'}"
    print(f"\nOn the same images the earlier model {name} has {', '.join(before.describe_accuracy())}{unknown}.")
    print(f"{describe_comparison(comparison)} (First: {name}, second: this run.)")
