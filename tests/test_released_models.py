"""Nothing of a model is alive once the user lets go of it: no layer, variable, optimizer or gradient function.

As a program, on JAX: prints what is alive after each job, see `ALIVE`.
"""

import gc
import os
import subprocess
import sys
import tempfile
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

import keras_vit
from keras_vit import inspect
from keras_vit.export import write_onnx, write_saved_model, write_tflite

TOY = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}
IMAGES = np.random.default_rng(1).uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
LABELS = np.arange(4)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return IMAGES, LABELS


def batch_by_batch():
    while True:
        yield IMAGES, LABELS


def around(model):
    inputs = keras.Input((8, 8, 3))
    return keras.Model(inputs, keras.layers.Dense(5)(model(keras.layers.RandomFlip()(inputs))))


def trained(model, data, **steps):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(data, verbose=0, shuffle=False, **{f"{name}_per_epoch": count for name, count in steps.items()})
    model.evaluate(data, verbose=0, **steps)
    model.predict(data, verbose=0, **steps)


def trained_on_arrays(model):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IMAGES, LABELS, verbose=0)
    model.evaluate(IMAGES, LABELS, verbose=0)
    model.predict(IMAGES, verbose=0)
    model.train_on_batch(IMAGES, LABELS)
    model.predict_on_batch(IMAGES)


def dataset():
    return tf.data.Dataset.from_tensors((IMAGES, LABELS))


def inspected(model):
    keras_vit.classify(model, np.zeros((8, 8, 3), "uint8"), top=1)
    inspect.attention_rollout(model, IMAGES)
    inspect.attention_distance(model, IMAGES)
    inspect.layer_similarity(inspect.layer_features(model, IMAGES))
    if keras.backend.backend() == "tensorflow":
        inspect.gradient_rollout(model, IMAGES, LABELS)


def loop(model):
    """A training step that the user wrote."""
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    step(IMAGES)


def saved(model, folder):
    model.save(f"{folder}/model.keras")
    keras_vit.load(f"{folder}/model.keras")
    write_saved_model(model, f"{folder}/saved_model")
    model.export(f"{folder}/exported", verbose=False)


JOBS = {
    "arrays": lambda model, folder: trained_on_arrays(model),
    "tf.data": lambda model, folder: trained(model, dataset()),
    "generator": lambda model, folder: trained(model, batch_by_batch(), steps=1),
    "PyDataset": lambda model, folder: trained(model, Batches()),
    "functional": lambda model, folder: trained(around(model), dataset()),
    "inspect": lambda model, folder: inspected(model),
}
WITH_TENSORFLOW = {
    "loop": lambda model, folder: loop(model),
    "saved": saved,
    "tflite": lambda model, folder: write_tflite(model, f"{folder}/model.tflite"),
    "onnx": lambda model, folder: write_onnx(model, f"{folder}/model.onnx"),
}


def alive(job, folder) -> list[str]:
    """What of a model, by the names of types, is alive after a job."""
    gc.collect()
    before = {*ops.gradient_registry._registry}
    model = keras_vit.VisionTransformer(**TOY)
    objects = [*model._flatten_layers(), *model.variables, *(variable.value for variable in model.variables)]
    job(model, str(folder))
    objects += [model.optimizer] if getattr(model, "optimizer", None) else []
    references = [(type(each).__name__, weakref.ref(each)) for each in objects]
    del model, objects
    for _ in range(2):  # the first removes gradient functions, which hold graphs
        gc.collect()
    new = {*ops.gradient_registry._registry} - before
    return sorted(name for name, reference in references if reference() is not None) + sorted(new)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*JOBS, "loop", "saved", *(pytest.param(name, marks=pytest.mark.extended) for name in ("tflite", "onnx"))]
)
def test_with_tensorflow(name, tmp_path):
    assert alive({**JOBS, **WITH_TENSORFLOW}[name], tmp_path) == []


@pytest.mark.extended
def test_with_jax():
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == [f"{name}: []" for name in JOBS], done.stderr[-2000:]


if __name__ == "__main__":
    for name, job in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {alive(job, folder)}")
