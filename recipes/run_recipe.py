"""Runs a recipe from start to end: trains, evaluates, and writes the model, its model card and the metrics."""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from keras_vit.class_names import LABELS, class_names_text
from keras_vit.model_card import model_card
from keras_vit.recipes.data.corrupt_images import skipped_summary
from keras_vit.recipes.processes.jax_devices import on_this_process
from keras_vit.recipes.recipe import USED_WITH_WEIGHTS, Recipe
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.runs.folder import check_resumable, required_folder
from keras_vit.recipes.runs.logs import LOG, read_log
from keras_vit.recipes.runs.loop import fit
from keras_vit.recipes.runs.open_run import open_run
from keras_vit.recipes.runs.self_supervised import Pretraining
from keras_vit.recipes.runs.supervised import ClassifierTraining
from keras_vit.recipes.training.callbacks import check_finite_metrics
from keras_vit.weights.files import METRICS, MODEL

CARD = "model_card.md"
# Of the history of a training: a card omits the first two, and the others if they are 0.
BOOKKEEPING, COUNTS = ("learning_rate", "images_per_second"), ("nonfinite_steps", "overflows")
COLOR_TOP1 = "color top-1"


def run(recipe: Recipe) -> dict[str, float]:
    """Trains, evaluates a classifier on the test set, and writes the results into `recipe.run.folder`, if set.

    The folder then holds checkpoints, recipe.json, run.json (the run's id and data), log.csv, model.keras (after
    pre-training without labels: the model without head and decoder), labels.txt (one class per line), model_card.md and
    metrics.json. It is locked while the recipe runs.

    Returns:
        The metrics, such as "loss" and "top1"; top-1 and top-5 accuracy are in [0, 1]. With steps that were skipped
        because their gradients were not finite, "nonfinite_steps", their number.

    Raises:
        ValueError, OSError: The recipe cannot be trained; or, after model.keras was written, the test set cannot be
            read or has changed.
        FloatingPointError: The training diverged: gradients or weights are not finite, and no results are written; or
            metrics are not, and metrics.json is not written.
    """
    with open_run(recipe) as run:  # devices, folder, data
        training = ClassifierTraining(run) if recipe.has_labels else Pretraining(run)
        history = fit(run, training)  # from the last checkpoint
        saves = run.folder and run.workers.chief
        if saves:  # before anything that can fail
            _write_model(run.folder, training.result)
        metrics = training.metrics(history or _last_logged(recipe))
        if saves:
            write_file(os.path.join(run.folder, CARD), run_card(training.result, recipe, metrics))
            write_file(os.path.join(run.folder, METRICS), json.dumps(metrics, indent=2, allow_nan=False) + "\n")
        if skipped := skipped_summary():
            print(skipped, file=sys.stderr)
        return metrics


def run_unless_finished(recipe: Recipe) -> dict[str, float]:
    """The metrics of a recipe: those in its folder if that run is finished, else those of `run`.

    Raises:
        ValueError: `run.folder` is not set, or holds a run of another recipe or one that `run.resume` does not resume.
        FloatingPointError: See `run`; or the metrics in the folder are not finite.
    """
    file = os.path.join(required_folder(recipe), METRICS)
    if tf.io.gfile.exists(file):
        check_resumable(recipe)
        has_test = recipe.has_labels and recipe.data.test_split
        metrics = _read_metrics(file, "top1" if has_test else "training_loss" if recipe.has_labels else "loss")
        check_finite_metrics(metrics, file)
        return metrics
    print(f"\n== {recipe.run.folder}")
    return run(recipe)


def _read_metrics(file, name) -> dict[str, float]:
    try:
        with tf.io.gfile.GFile(file) as content:
            metrics = json.load(content)
        if all(isinstance(value, int | float) for value in [metrics[name], *metrics.values()]):
            return metrics
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise ValueError(f"{file} is damaged. Delete it: to resume writes it again, from the last checkpoint.")


def _write_model(folder, model):
    """Writes model.keras and, if there are class names, labels.txt into the folder."""
    tf.io.gfile.makedirs(folder)
    with tempfile.TemporaryDirectory() as temporary:
        local = Path(temporary) / MODEL
        # A copy that was never compiled: without optimizer and losses, `import keras_vit` is enough to load the file.
        with on_this_process():
            copy = model.resized(model.image_size, name=model.name)
        copy.save(local)
        write_file(os.path.join(folder, MODEL), local.read_bytes())
    if model.class_names:
        write_file(os.path.join(folder, LABELS), class_names_text(model.class_names))


def run_card(
    model,
    recipe: Recipe,
    metrics: dict,
    origin: str | None = None,
    measured: str | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """The model card of a recipe's model.keras.

    Args:
        metrics: As `run` returns them.
        origin: A sentence on how the model was made; by default from the recipe.
        measured: A sentence on the metrics; by default they are those of `run`.
        warnings: Sentences on why the metrics may not hold.
    """
    data = recipe.data
    subset = f", {data.labels_per_class} images per class" if data.labels_per_class else ""
    sentences = [measured or _measured(recipe, metrics), *warnings]
    text = f"`{data.dataset}`, split `{data.train_split}`{subset}. {' '.join(sentences)}"
    return model_card(model, MODEL, origin or _origin(recipe), text, _effective_fields(recipe), _shown(recipe, metrics))


def _measured(recipe, metrics) -> str:
    if recipe.has_labels and recipe.data.test_split:
        return f"Metrics are of its split `{recipe.data.test_split}`; accuracies are in [0, 1]."
    measured = "Metrics are those of the last epoch of training."
    if "top1" in metrics and not recipe.has_labels:
        measured += f" `{COLOR_TOP1}` is the accuracy of the predicted colors, in [0, 1]; the model has no classes."
    return measured


def _shown(recipe, metrics):
    """The metrics that say something about the model, by their names in the card."""
    shown = {
        name: value for name, value in metrics.items() if name not in BOOKKEEPING and (value or name not in COUNTS)
    }
    if not recipe.has_labels:
        shown = {COLOR_TOP1 if name == "top1" else name: value for name, value in shown.items()}
    return shown


def _effective_fields(recipe):
    """The fields of a recipe, without those of an architecture that its weights determine."""
    fields = dataclasses.asdict(recipe)
    if recipe.weights:
        fields["architecture"] = {name: fields["architecture"][name] for name in USED_WITH_WEIGHTS}
    return fields


def _origin(recipe):
    if not recipe.has_labels:
        return f"Pre-trained here {recipe.method}."
    start = f"Fine-tuned here from `{recipe.weights}`." if recipe.weights else "Trained here from random weights."
    return f"{start} Its teacher was `{recipe.teacher}`." if recipe.has_teacher else start


def _last_logged(recipe) -> dict[str, list[float]]:
    """The history of the last line of log.csv, for a run that had trained all its steps; {} if the file is missing.

    Raises ValueError without it if there is no test set, so that it would be the result.
    """
    folder = recipe.run.folder
    rows = read_log(os.path.join(folder, LOG))
    last = rows[-1] if rows else {}
    if not last and not (recipe.has_labels and recipe.data.test_split):
        raise ValueError(
            f"The training is complete, and its model is {folder}/{MODEL}, but its metrics were in {LOG}, which is "
            "missing or empty. Restore that file."
        )
    return {name: [float(value)] for name, value in last.items() if value and name not in ("epoch", "step")}
