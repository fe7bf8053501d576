"""Distillation from a teacher (DeiT, arXiv 2012.12877, section 4): teachers from any source, the loss, the model.

B batch, H W pixels, C classes.
"""

import json
import os
import re

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vit
from keras_vit import Preprocessing, VisionTransformer
from keras_vit.atomic_write import literal_folder
from keras_vit.class_names import LABELS, own_class_names, read_class_names
from keras_vit.recipes.recipe import Data, Distillation

# The first that exists: of probabilities only a softmax, whose sum is 1, differs visibly from logits, sigmoids do not.
SIGNATURES = ("logits", "serving_default", "serve", "classify")


class Teacher:
    """Logits of a classifier for images in the student's pixel range: (B, H, W, 3) float -> (B, C) float32.

    The classifier runs in inference mode, without gradients. A teacher is not a layer, so a model that holds one
    neither trains nor counts nor saves its variables.

    Classifiers that end in a softmax are detected by their outputs; logarithms of probabilities are logits too.

    Args:
        preprocessing: The classifier's; only mean and std are used, to map images from the student's pixel range to
            the classifier's. Defaults to that of a `keras_vit` model; other models get the student's range.
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
            shape = getattr(outputs, "shape", type(outputs).__name__)
            raise ValueError(f"The teacher must return logits or probabilities, (B, C). Received: {shape}")
        outputs = ops.stop_gradient(ops.cast(outputs, "float32"))
        return ops.log(ops.maximum(outputs, 1e-30)) if self.returns_probabilities else outputs

    def _try(self, data):
        """Outputs for two images of noise, called as in training: in a replica, in a graph."""
        strategy = tf.distribute.get_strategy()
        noise = np.random.default_rng(0).random((2, *data.input_size, 3), "float32")
        images = tf.constant((noise - np.array(data.mean, "float32")) / np.array(data.std, "float32"))

        @tf.function  # a named function: lambdas are not supported in a TPU's graph
        def call(images):
            return strategy.run(self, args=(images,))

        try:
            outputs = call(images)
        except (ValueError, TypeError, tf.errors.OpError) as error:
            # Keras prints the sentence in bold, between the calls before it and the arguments of the layer.
            bold = re.search(r"\x1b\[1m(.+?)\x1b\[0m", str(error), re.DOTALL)
            reason = " ".join((bold[1] if bold else str(error)).split())
            raise ValueError(f"The teacher fails on the student's images of shape {images.shape}: {reason}") from error
        return strategy.experimental_local_results(outputs)[0].numpy()


def load_teacher(path, data: Data) -> Teacher:
    """Loads a teacher. Call it in the strategy's scope.

    `path` is a Keras model (.keras); the folder of a SavedModel with a signature of one input and one output, as
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
    with literal_folder(path) as folder:
        loaded = tf.saved_model.load(folder)
    functions = [loaded.signatures[name] for name in SIGNATURES if name in loaded.signatures]
    inputs = list(functions[0].structured_input_signature[1]) if functions else []
    if len(inputs) != 1:
        raise ValueError(
            f"{path} has the signatures {', '.join(loaded.signatures) or 'none'}. A teacher requires one of "
            f"{', '.join(SIGNATURES)} with one input, images. Export it with keras_vit.export.write_saved_model."
        )

    def call(images, loaded=loaded):  # keeps `loaded` alive as long as this function
        return functions[0](**{inputs[0]: images})

    return call


def _preprocessing(path):
    """The preprocessing stored in a SavedModel by `keras_vit.export`; None in other SavedModels."""
    file = os.path.join(path, "assets.extra", "preprocessing.json")
    if not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file) as content:
        return Preprocessing(**json.load(content))


@keras.saving.register_keras_serializable(package="keras_vit")
class TeacherLoss(keras.losses.Loss):
    """Loss of a student's logits (B, C) against a teacher's logits (B, C); one value per image, then the mean.

    "hard": cross-entropy with the teacher's class, argmax z_t (equation 3). "soft": T^2 KL(softmax(z_t / T) ||
    softmax(z_s / T)), summed over the classes (equation 2); the authors' code also divides by C (facebookresearch/deit,
    losses.py).
    """

    def __init__(self, distillation="hard", temperature=3.0, name="teacher", **kwargs):
        super().__init__(name=name, **kwargs)
        self.distillation = distillation
        self.temperature = temperature

    def call(self, y_true, y_pred):
        if self.distillation == "hard":
            chosen = ops.one_hot(ops.argmax(y_true, axis=-1), y_pred.shape[-1], dtype=y_pred.dtype)  # (B, C)
            # The largest of NaN is the first class: without this, the student would learn it.
            chosen = ops.where(ops.isnan(y_true), ops.cast(y_true, chosen.dtype), chosen)  # (B, C)
            return -ops.sum(chosen * ops.log_softmax(y_pred, axis=-1), axis=-1)  # (B,)
        teacher, student = (ops.log_softmax(logits / self.temperature, axis=-1) for logits in (y_true, y_pred))
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)  # (B,)

    def get_config(self):
        return {**super().get_config(), "distillation": self.distillation, "temperature": self.temperature}


class DistillationModel(keras.Model):
    """Trains both heads of a student: (1 - alpha) loss(class head, label) + alpha TeacherLoss(distillation head).

    The class head of a student without a distillation head learns from both ("usual distillation" in table 3 of the
    paper). The loss of labels is that of `compile`, including label smoothing, for labels (B,) or (B, C). The teacher
    gets the student's images, after augmentation. Metrics, evaluations and predictions use the mean of both heads,
    which is the student's own output. The result of the training is `student`; save that.

    Input: (B, H, W, 3) float. Output: logits (B, C); in training, the pair that labels and teacher train.
    """

    def __init__(self, student, teacher: Teacher, distillation="hard", temperature=3.0, alpha=0.5, **kwargs):
        super().__init__(dtype=student.dtype_policy, **kwargs)
        if teacher.num_classes != student.num_classes:
            raise ValueError(
                f"The teacher has {teacher.num_classes} classes, the student {student.num_classes}. Use a teacher "
                "trained on the same classes."
            )
        self.student = student
        self.teacher = teacher
        self.teacher_loss = TeacherLoss(distillation, temperature)
        self.alpha = alpha
        self.build()

    def build(self, input_shape=None):
        """Nothing to build: the student already has its weights."""

    def call(self, images, training=None):
        if not training:
            return self.student(images, training=False)
        if self.student.config.distillation:
            return self.student.both_heads(images, training=True)
        logits = self.student(images, training=True)
        return logits, logits

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, tuple):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        classes, distilled = y_pred
        labels_loss = super().compute_loss(x, y, classes, sample_weight, training)
        teacher_loss = self.teacher_loss(self.teacher(x), distilled, sample_weight)
        return (1.0 - self.alpha) * labels_loss + self.alpha * teacher_loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        mean = (y_pred[0] + y_pred[1]) / 2 if isinstance(y_pred, tuple) else y_pred
        return super().compute_metrics(x, y, mean, sample_weight)

    def get_config(self):
        raise NotImplementedError("The teacher is not saved. Save the student: model.student.save(...).")


def build_distillation(student, recipe: Distillation) -> DistillationModel:
    """Loads the recipe's teacher and builds the model that trains the student. Call it in the strategy's scope."""
    if not isinstance(student, VisionTransformer):
        raise ValueError(
            f"A Distillation recipe trains a Vision Transformer. Received: {student.name}, a {type(student).__name__}. "
            "Use weights of a Vision Transformer."
        )
    has_token = bool(student.config.distillation)
    if has_token != recipe.distillation_token:
        raise ValueError(
            f"The model to train has {'a' if has_token else 'no'} distillation token. Received: distillation_token="
            f"{recipe.distillation_token}. Use other weights, or set distillation_token={has_token}."
        )
    teacher = load_teacher(recipe.teacher, recipe.data)
    return DistillationModel(student, teacher, recipe.distillation, recipe.temperature, recipe.distillation_alpha)
