"""Several processes of a run compare what must be equal before they train: a difference would not be seen later."""

import hashlib
import json
import os

import keras
import tensorflow as tf

from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe.values import flat_fields
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.version import __version__

# Fields that may differ between hosts: where they find the same files.
OF_A_HOST = ("run.folder", "run.join_seconds", "run.tensorboard", "data.data_dir", "data.service")
MOST_SHOWN = 3


def check_same_recipe(recipe: Recipe, workers: Workers):
    """Raises ValueError in all processes unless all have the same recipe and versions, see `check_equal`."""
    fields = {name: value for name, value in flat_fields(recipe).items() if name not in OF_A_HOST}
    versions = {"keras_vit": __version__, "keras": keras.__version__, "tensorflow": tf.__version__}
    if isinstance(workers.strategy, JaxDevices):
        import jax

        versions["jax"] = jax.__version__
    start = fields.get("weights")  # with JAX, other weights could not be set
    if workers.several and isinstance(start, str) and os.path.isfile(start):
        with open(start, "rb") as file:
            versions["the file of the weights (SHA-256)"] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    check_equal({"the kind of training": type(recipe).__name__, **fields, **versions}, workers)


def check_same_data(data: RunData, workers: Workers):
    """Raises ValueError in all processes unless all read the same data; it compares what a `RunIdentity` has."""
    if workers.several:
        names = data.dataset.class_names
        classes = {"the number of classes": len(names), "the classes": names}
        images, files = data.images, data.files[:16]
        check_equal({**classes, "the images of each split": images, "the files (SHA-256)": files}, workers)


def check_same_weights(model, workers: Workers):
    """Raises ValueError in all processes unless the weights of all are equal, bit for bit."""
    if workers.several:
        digest = hashlib.sha256()
        for weight in model.weights:
            digest.update(keras.ops.convert_to_numpy(weight).tobytes())
        check_equal({"the start weights (SHA-256)": digest.hexdigest()[:16]}, workers)


def check_equal(facts: dict, workers: Workers):
    """Raises ValueError in all processes unless each fact is equal in all of them; all must call it.

    Args:
        facts: Values with a `repr` that is the same in all processes, by name.
    """
    own = json.dumps({name: repr(value) for name, value in facts.items()})
    everyone = [json.loads(text) for text in workers.gather_text(own)]
    differences = []
    for name in dict.fromkeys(name for each in everyone for name in each):
        values = [each.get(name, "none") for each in everyone]
        other = next((i for i, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            first, second = (text if len(text) <= 100 else f"{text[:97]}..." for text in (values[0], values[other]))
            differences.append(f"{name}: {first} in process 0, {second} in process {other}")
    if differences:
        more = f"; and {len(differences) - MOST_SHOWN} more" if len(differences) > MOST_SHOWN else ""
        raise ValueError(
            f"The processes of this run differ in {'; '.join(differences[:MOST_SHOWN])}{more}. Start all of them with "
            "the same command, data and versions."
        )
