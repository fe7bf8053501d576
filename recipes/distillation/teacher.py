"""A trained classifier that a student listens to. B batch, H W pixels, C classes."""

import json
import os

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vit
from keras_vit import Preprocessing
from keras_vit.recipes.recipe import Data

SIGNATURES = ("serving_default", "serve", "classify")


class Teacher:
    """Logits of a classifier for images in the student's range: (B, H, W, 3) float -> (B, C) float32.

    The classifier runs in inference mode and no gradient enters it. A teacher is no layer: a model that holds one
    neither trains nor counts nor saves its variables.

    A classifier that ends in a softmax is recognized by its answers; their logarithms are logits too.

    Args:
        classifier: A Keras model, or another function of one batch of images.
        data: Range and size of the student's images.
        preprocessing: What the classifier wants, of which mean and std count: images are moved from the student's
            range to the classifier's. By default a `keras_vit` model's own; other models get the student's range.

    Attributes:
        num_classes: Their number, C.

    Raises:
        ValueError: The classifier takes images of another size, or does not give one row of classes an image.
    """

    def __init__(self, classifier, data: Data, preprocessing: Preprocessing | None = None):
        own = preprocessing or getattr(classifier, "preprocessing", None)
        wanted = own if isinstance(own, Preprocessing) else data
        (mean, std), (our_mean, our_std) = (np.array((x.mean, x.std), "float32") for x in (wanted, data))
        self.classifier = classifier
        self.scale, self.shift = our_std / std, (our_mean - mean) / std
        self.gives_probabilities = False
        answers = self._try(data)
        self.num_classes = answers.shape[-1]
        # A head of zeros gives zeros, and other logits do not sum to 1 twice by chance.
        self.gives_probabilities = bool(answers.min() >= 0 and np.allclose(answers.sum(axis=-1), 1, atol=1e-2))

    def __call__(self, images):
        pixels = ops.cast(images, "float32") * self.scale + self.shift
        is_keras = isinstance(self.classifier, keras.Layer)
        answers = self.classifier(pixels, training=False) if is_keras else self.classifier(pixels)
        if isinstance(answers, dict) and len(answers) == 1:
            (answers,) = answers.values()
        if not hasattr(answers, "shape") or len(answers.shape) != 2:
            found = getattr(answers, "shape", type(answers).__name__)
            raise ValueError(f"A teacher answers with logits or probabilities, (B, C). Received: {found}")
        answers = ops.stop_gradient(ops.cast(answers, "float32"))
        return ops.log(ops.maximum(answers, 1e-30)) if self.gives_probabilities else answers

    def _try(self, data):
        """Answers for two images of noise, from where training will ask: in a replica, in a graph."""
        strategy = tf.distribute.get_strategy()
        noise = np.random.default_rng(0).random((2, data.image_size, data.image_size, 3), "float32")
        images = tf.constant((noise - np.array(data.mean, "float32")) / np.array(data.std, "float32"))

        @tf.function  # with a name: a TPU's graph takes none of a lambda
        def answer(images):
            return strategy.run(self, args=(images,))

        try:
            answers = answer(images)
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise ValueError(
                f"The teacher does not answer for images of the shape {images.shape}, which the student sees: {error}"
            ) from error
        return strategy.experimental_local_results(answers)[0].numpy()


def load_teacher(path, data: Data) -> Teacher:
    """Opens a teacher; call it inside the strategy's scope.

    Args:
        path: A Keras model (.keras); the folder of a SavedModel with a signature of one input and one output, as
            `keras_vit.export` writes it; or another checkpoint that `keras_vit.load` takes.
        data: What the student sees.

    Raises:
        ValueError: The SavedModel has no such signature; see also `Teacher`.
        FileNotFoundError, OSError: There is no such file, or it is damaged.
    """
    path = str(path)
    if path.endswith((".keras", ".h5")) and not path.endswith(".weights.h5"):
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(f"There is no teacher {path}.")
        return Teacher(keras.saving.load_model(path, compile=False), data)
    if tf.io.gfile.exists(os.path.join(path, "saved_model.pb")):
        return Teacher(_signature(path), data, _preprocessing(path))
    return Teacher(keras_vit.load(path), data)


def _signature(path):
    """The function of a SavedModel, of one batch of images."""
    loaded = tf.saved_model.load(path)
    known = [loaded.signatures[name] for name in SIGNATURES if name in loaded.signatures]
    inputs = list(known[0].structured_input_signature[1]) if known else []
    if len(inputs) != 1:
        raise ValueError(
            f"{path} has the signatures {', '.join(loaded.signatures) or 'none'}. A teacher needs one of "
            f"{', '.join(SIGNATURES)}, with one input, images. Export it with keras_vit.export.write_saved_model."
        )

    def answer(images, loaded=loaded):  # what is loaded lives as long as this function
        return known[0](**{inputs[0]: images})

    return answer


def _preprocessing(path):
    """What `keras_vit.export` keeps beside a SavedModel; None for those of others."""
    file = os.path.join(path, "assets.extra", "preprocessing.json")
    if not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file) as content:
        return Preprocessing(**json.load(content))
