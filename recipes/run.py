"""What a finished run leaves in its folder: the model, the names of its classes, its figures."""

import csv
import io
import json
import os
import tempfile
from pathlib import Path

import tensorflow as tf

from keras_vit.recipes.data import class_names, open_dataset
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.fit import evaluate, pretrain, train
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.card import CARD, run_card
from keras_vit.recipes.training.logs import LOG
from keras_vit.recipes.training.run_folder import METRICS, check_same_run
from keras_vit.recipes.write_file import write_file

MODEL = "model.keras"
LABELS = "labels.txt"


def run(recipe) -> dict[str, float]:
    """Trains, evaluates a classifier on the test split, and writes all that into the recipe's folder, if it names one.

    Beside the checkpoints and recipe.json stand then: model.keras (of masked patches: the model without a head),
    labels.txt (a class a line), metrics.json and model_card.md.

    Returns:
        The figures, accuracies in [0, 1].
    """
    if isinstance(recipe, MaskedPatch):
        masked, history = pretrain(recipe)
        model, names = masked.vit, None
        metrics = {name: values[-1] for name, values in history.items()} or _logged(recipe.run.folder)
    else:
        model, _ = train(recipe)
        names = class_names(open_dataset(recipe.data))
        metrics = evaluate(model, recipe.data, recipe.data.test_split)
    if recipe.run.folder and Workers(model.distribute_strategy).chief:
        write_results(recipe, model, metrics, names)
    return metrics


def finished(recipe) -> dict[str, float]:
    """The figures of a run: from its folder, if it is finished there, else `run`.

    Raises:
        ValueError: The folder holds another recipe's run, or one that was broken off and the recipe does not resume.
    """
    file = os.path.join(recipe.run.folder, METRICS)
    if tf.io.gfile.exists(file):
        check_same_run(recipe)
        with tf.io.gfile.GFile(file) as content:
            return json.load(content)
    print(f"\n== {recipe.run.folder}")
    return run(recipe)


def write_results(recipe, model, metrics: dict, names=None):
    """Writes model.keras, labels.txt if there are names, model_card.md and metrics.json into the recipe's folder."""
    folder = recipe.run.folder
    tf.io.gfile.makedirs(folder)
    with tempfile.TemporaryDirectory() as temporary:
        local = Path(temporary) / MODEL
        # A copy that was never compiled: without optimizer and losses, `import keras_vit` is all that loading takes.
        model.resized(model.image_size).save(local)
        write_file(os.path.join(folder, MODEL), local.read_bytes())
    if names:
        write_file(os.path.join(folder, LABELS), "".join(f"{name}\n" for name in names))
    write_file(os.path.join(folder, CARD), run_card(model, recipe, metrics))
    write_file(os.path.join(folder, METRICS), json.dumps(metrics, indent=2) + "\n")


def _logged(folder):
    """The last line of the log, of a run whose last step was done before."""
    with tf.io.gfile.GFile(os.path.join(folder, LOG)) as content:
        *_, last = csv.DictReader(io.StringIO(content.read()))
    return {name: float(value) for name, value in last.items() if value and name not in ("epoch", "step")}
