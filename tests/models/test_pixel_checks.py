"""Pixels in [0, 255] for a model of scaled ones: an error in every entry that sees values, none for scaled images."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3)).astype("float32")
LABELS = np.arange(6) % 5


class Batches(keras.utils.PyDataset):
    def __init__(self, images):
        super().__init__()
        self.images = images

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.images, LABELS


def dataset(images):
    return tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4)


def of_images(images):
    return tf.data.Dataset.from_tensor_slices(images).batch(4)


ENTRIES = {
    "fit": lambda model, images: model.fit(images, LABELS, verbose=0),
    "fit x=": lambda model, images: model.fit(x=images, y=LABELS, verbose=0),
    "fit a dataset": lambda model, images: model.fit(dataset(images), shuffle=False, verbose=0),
    "fit a PyDataset": lambda model, images: model.fit(Batches(images), verbose=0),
    "validation": lambda model, images: model.fit(
        PIXELS / 127.5 - 1, LABELS, validation_data=(images, LABELS), verbose=0
    ),
    "validation dataset": lambda model, images: model.fit(
        PIXELS / 127.5 - 1, LABELS, validation_data=dataset(images), verbose=0
    ),
    "evaluate": lambda model, images: model.evaluate(dataset(images), verbose=0),
    "predict": lambda model, images: model.predict(images, verbose=0),
    "predict a list": lambda model, images: model.predict([images], verbose=0),
    "predict a dataset": lambda model, images: model.predict(of_images(images), verbose=0),
    "train_on_batch": lambda model, images: model.train_on_batch(images, LABELS),
    "test_on_batch": lambda model, images: model.test_on_batch(images, LABELS),
    "predict_on_batch": lambda model, images: model.predict_on_batch(tf.constant(images)),
}


def compiled(model):
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.fixture(scope="module")
def model():
    sizes = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
    return compiled(keras_vit.VisionTransformer(num_classes=5, **sizes))


@pytest.mark.parametrize("entry", ENTRIES)
def test_unscaled_pixels_are_refused(model, entry):
    ENTRIES[entry](model, PIXELS / 127.5 - 1)
    with pytest.raises(ValueError, match="between -1 and 1.*model.preprocess") as refused:
        ENTRIES[entry](model, PIXELS)
    assert type(refused.value) is ValueError


def test_arrays_of_other_shapes_are_refused(model):
    """Also after arrays of several shapes, when TensorFlow's graph knows none."""
    images = PIXELS / 127.5 - 1
    for count in (1, 2, 3):
        model.predict(images[:count], batch_size=3, verbose=0)
    for array, text in ((images[:0], "at least one image"), (np.moveaxis(images, 3, 1), r"moveaxis\(images, 1, -1\)")):
        with pytest.raises(ValueError, match=text):
            model.predict(array, verbose=0)


def test_a_model_of_pixels_takes_them(toy):
    assert np.isfinite(compiled(toy(preprocessing="pixels")).test_on_batch(PIXELS, LABELS))


def test_two_replicas(toy, logical_cpus):
    logical_cpus(2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = compiled(toy())
    with pytest.raises(ValueError, match="between -1 and 1"):
        model.fit(dataset(PIXELS), shuffle=False, verbose=0)


def test_the_order_of_a_shuffled_dataset_is_that_of_keras_alone(model):
    def shuffled():
        return tf.data.Dataset.from_tensor_slices(PIXELS / 127.5 - 1).shuffle(6, seed=1).batch(6)

    np.testing.assert_allclose(model.predict(shuffled(), verbose=0), model(next(iter(shuffled()))), atol=1e-5)
