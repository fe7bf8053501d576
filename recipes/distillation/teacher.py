"""Teachers for distillation: trained classifiers from any source. B batch, H W pixels, C classes."""

import json
import os

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vit
from keras_vit import Preprocessing
from keras_vit.class_names.files import LABELS, own_class_names, read_class_names
from keras_vit.recipes.recipe import Data

# The first that exists: of probabilities only a softmax, whose sum is 1, differs visibly from logits, sigmoids do not.
SIGNATURES = ("logits", "serving_default", "serve", "classify")


class Teacher:
    """Logits of a classifier for images in the student's pixel range: (B, H, W, 3) float -> (B, C) float32.

    The classifier runs in inference mode, without gradients. A teacher is not a layer, so a model that holds one
    neither trains nor counts nor saves its variables.

    Classifiers that end in a softmax are detected by their outputs; logarithms of probabilities are logits too.

    Args:
        classifier: A Keras model, or another function of one batch of images.
        data: Pixel range and size of the student's images.
        preprocessing: The classifier's; only mean and std are used, to map images from the student's pixel range to
            the classifier's. Defaults to that of a `keras_vit` model; other models get the student's range.

    Attributes:
        num_classes: C.
        class_names: C names, in the order of the outputs; None if they are unknown.
    """

    def __init__(self, classifier, data: Data, preprocessing: Preprocessing | None = None):
        own = preprocessing or getattr(classifier, "preprocessing", None)
        pixels = own if isinstance(own, Preprocessing) else data
        (mean, std), (student_mean, student_std) = (np.array((x.mean, x.std), "float32") for x in (pixels, data))
        self.classifier = classifier
        self.scale, self.shift = student_std / std, (student_mean - mean) / std
        self.returns_probabilities = False
        outputs = self._try(data)
        self.num_classes = outputs.shape[-1]
        self.class_names = getattr(classifier, "class_names", None)
        # The outputs of a zero head sum to 0, and other logits do not sum to 1 twice by chance.
        self.returns_probabilities = bool(outputs.min() >= 0 and np.allclose(outputs.sum(axis=-1), 1, atol=1e-2))

    def __call__(self, images):
        pixels = ops.cast(images, "float32") * self.scale + self.shift
        is_keras = isinstance(self.classifier, keras.Layer)
        outputs = self.classifier(pixels, training=False) if is_keras else self.classifier(pixels)
        if isinstance(outputs, dict) and len(outputs) == 1:
            (outputs,) = outputs.values()
        if not hasattr(outputs, "shape") or len(outputs.shape) != 2:
            found = getattr(outputs, "shape", type(outputs).__name__)
            raise ValueError(f"The teacher must return logits or probabilities, (B, C). Received: {found}")
        outputs = ops.stop_gradient(ops.cast(outputs, "float32"))
        return ops.log(ops.maximum(outputs, 1e-30)) if self.returns_probabilities else outputs

    def _try(self, data):
        """Outputs for two images of noise, called as in training: in a replica, in a graph."""
        strategy = tf.distribute.get_strategy()
        noise = np.random.default_rng(0).random((2, data.image_size, data.image_size, 3), "float32")
        images = tf.constant((noise - np.array(data.mean, "float32")) / np.array(data.std, "float32"))

        @tf.function  # a named function: lambdas are not supported in a TPU's graph
        def call(images):
            return strategy.run(self, args=(images,))

        try:
            outputs = call(images)
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise ValueError(f"The teacher fails on the student's images of shape {images.shape}: {error}") from error
        return strategy.experimental_local_results(outputs)[0].numpy()


def load_teacher(path, data: Data) -> Teacher:
    """Loads a teacher. Call it in the strategy's scope.

    Args:
        path: A Keras model (.keras); the folder of a SavedModel with a signature of one input and one output, as
            written by `keras_vit.export`; or another checkpoint that `keras_vit.load` supports.
    """
    path = str(path)
    if path.endswith((".keras", ".h5")) and not path.endswith(".weights.h5"):
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(f"The teacher {path} does not exist.")
        teacher = Teacher(keras.saving.load_model(path, compile=False), data)
    elif tf.io.gfile.exists(os.path.join(path, "saved_model.pb")):
        teacher = Teacher(_signature(path), data, _preprocessing(path))
        labels = os.path.join(path, "assets", LABELS)
        if os.path.isfile(labels):
            teacher.class_names = read_class_names(labels)
    else:
        return Teacher(keras_vit.load(path), data)
    teacher.class_names = own_class_names(path, teacher.num_classes) or teacher.class_names
    return teacher


def _signature(path):
    """The function of a SavedModel that maps a batch of images."""
    loaded = tf.saved_model.load(path)
    known = [loaded.signatures[name] for name in SIGNATURES if name in loaded.signatures]
    inputs = list(known[0].structured_input_signature[1]) if known else []
    if len(inputs) != 1:
        raise ValueError(
            f"{path} has the signatures {', '.join(loaded.signatures) or 'none'}. A teacher requires one of "
            f"{', '.join(SIGNATURES)} with one input, images. Export it with keras_vit.export.write_saved_model."
        )

    def call(images, loaded=loaded):  # keeps `loaded` alive as long as this function
        return known[0](**{inputs[0]: images})

    return call


def _preprocessing(path):
    """The preprocessing stored in a SavedModel by `keras_vit.export`; None in other SavedModels."""
    file = os.path.join(path, "assets.extra", "preprocessing.json")
    if not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file) as content:
        return Preprocessing(**json.load(content))
