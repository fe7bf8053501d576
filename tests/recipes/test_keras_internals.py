"""Private APIs of Keras and TensorFlow: all in one file, and all still there."""

import ast
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.jax.trainer import JAXTrainer

from keras_vit import recipes
from keras_vit.recipes import keras_internals
from keras_vit.recipes.keras_internals import build_from_spec, in_32_bits
from keras_vit.recipes.processes.strategies import choose_strategy

STARTS = []


def started(count):
    STARTS.append(1)
    return count


def data():
    """Batches of 4 images; counts how often they are started."""
    x = tf.data.Dataset.from_tensors(np.zeros((4, 3), "float32")).repeat(4)
    head = tf.data.Dataset.range(1).map(lambda zero: tf.numpy_function(started, [zero], tf.int64))
    return head.flat_map(lambda _: x.map(lambda x: (x, tf.reduce_sum(x, axis=1, keepdims=True))))


def compiled():
    with choose_strategy("mirrored").scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", "mse", weighted_metrics=["mae"], jit_compile=False)
    return model


def starts(model):
    """How often a `fit` of two epochs with validation starts the training data."""
    del STARTS[:]
    x = np.zeros((4, 3), "float32")
    fit = {"steps_per_epoch": 2, "epochs": 2, "validation_data": (x, x[:, :1]), "verbose": 0, "shuffle": False}
    history = model.fit(data(), **fit).history
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(history)
    return len(STARTS)


@pytest.mark.slow
def test_data_is_started_once_with_build_from_spec(logical_cpus):
    logical_cpus(2)
    model = compiled()
    with build_from_spec(model, lambda: data().element_spec):
        assert starts(model) == 1  # 2 by Keras alone


def test_private_names_exist(logical_cpus):
    """Names what a newer version of Keras or TensorFlow has moved, renamed or removed."""
    logical_cpus(2)
    optimizer = keras.optimizers.SGD(0.1, use_ema=True)
    with choose_strategy("mirrored").scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    optimizer.build(model.trainable_variables)
    used = {
        *re.findall(r"\b(?:model|optimizer|self|super\(\))\.(_[a-z]\w+)", Path(keras_internals.__file__).read_text()),
        *(name for name in vars(keras_internals.CustomUpdate) if name.startswith("_") and not name.startswith("__")),
        *("train_function", "test_function", "predict_function"),
    }
    used -= {"_abc_impl", "_keras_api_export_path", "_keras_api_symbol_id"}
    lamb = keras.optimizers.Lamb(0.1)
    lamb.build(model.trainable_variables)
    owners = (model, optimizer, lamb, JAXTrainer)
    missing = [name for name in used if not any(hasattr(owner, name) for owner in owners)]
    assert not missing and len(used) > 10
    assert keras_internals.seed_states(model)
    assert callable(tf.Graph()._get_function) and callable(tf.__internal__.distribute.interim.maybe_merge_call)
    assert keras_internals.is_default_strategy(tf.distribute.get_strategy())
    assert not keras_internals.is_default_strategy(model.distribute_strategy)


def test_private_names_of_keras_are_used_in_one_file():
    """Attributes that begin with "_", of anything but `self` and `cls`, in all files of recipes."""
    found = []
    for file in Path(recipes.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                owner = getattr(node.value, "id", "")
                if owner not in ("self", "cls", "os") and node.attr != "_asdict":
                    found.append(f"{file.name}:{node.lineno}: {node.attr}")
    assert {name.partition(":")[0] for name in found} == {"keras_internals.py"}, found


def test_jax_gets_labels_of_32_bits():
    images, labels = in_32_bits((tf.TensorSpec((2, 8, 8, 3), tf.float32), tf.TensorSpec((2,), tf.int64)))
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((2, 8, 8, 3), tf.float32, (2,), tf.int32)
