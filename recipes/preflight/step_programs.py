"""The steps of a recipe or a model, lowered to HLO. B images per device, C classes."""

from dataclasses import replace
from pathlib import Path

import keras
import tensorflow as tf

from keras_vit.recipes.preflight.lowering import HloProgram, lower_step, mesh_of
from keras_vit.recipes.runs.self_supervised import compile_self_supervised, self_supervised_batches
from keras_vit.recipes.runs.supervised import compile_classifier
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.trained import local_folder
from keras_vit.weights.downloads import cache_path


class StepPrograms:
    """What `RecipePrograms` and `ModelPrograms` have in common."""

    model: keras.Model
    replicas: int
    kinds: tuple[str, ...]
    accumulation_steps = 1
    notes: tuple[str, ...] = ()

    def lower(self, kind: str, batch_size: int) -> HloProgram:
        """The program of a step with B images per device."""
        return lower_step(self.model, kind, self.batch_specs(kind, batch_size), self.replicas)

    def batch_specs(self, kind: str, batch_size: int) -> tuple:
        """tf.TensorSpecs of the batch of a step: inputs, labels, sample weights."""
        raise NotImplementedError


MULTI_LABEL = "csv:"  # of other datasets, only their files tell whether images have several labels


class RecipePrograms(StepPrograms):
    """The training and evaluation step of a recipe.

    Weights determine the model, so those on this machine are loaded, as in training. Others are not downloaded: the
    model then has the recipe's architecture.
    """

    def __init__(self, recipe, num_classes: int, total_steps: int, replicas: int):
        self.recipe, self.num_classes, self.replicas = recipe, num_classes, replicas
        self.architecture = recipe.architecture.variant
        if not recipe.has_labels:
            self.model = compile_self_supervised(recipe)
            self.kinds = ("training",)
        else:
            self.multi_label = recipe.data.dataset.startswith(MULTI_LABEL)
            start = recipe
            if recipe.weights and _are_local(recipe.weights):
                self.architecture = recipe.weights
            elif recipe.weights:
                start, self.notes = replace(recipe, weights=None), (_assumption(recipe),)
            self.model, _ = compile_classifier(start, num_classes, total_steps, multi_label=self.multi_label)
            self.kinds = ("training", "evaluation")
        self.model.optimizer.build(self.model.trainable_variables)
        if recipe.run.shard_optimizer:
            self.model.optimizer.mesh = mesh_of(replicas)
        self.accumulation_steps = recipe.optimizer.accumulation_steps
        accumulate_gradients(self.model, self.accumulation_steps, replicas)

    def batch_specs(self, kind, batch_size):
        data, training = self.recipe.data, kind == "training"
        images = _floats(batch_size, *data.input_size, 3)
        labels = tf.TensorSpec((batch_size,), tf.int64)
        if not self.recipe.has_labels:
            shapes = tf.data.Dataset.range(1).map(lambda _: (tf.zeros(images.shape), tf.zeros(batch_size, tf.int64)))
            return self_supervised_batches(shapes, self.model.vit.patch_size, self.recipe).element_spec
        if self.multi_label or (training and data.augment.mixes):
            labels = _floats(batch_size, self.num_classes)
        weighted = not training or self.recipe.class_weight
        return (images, labels, _floats(batch_size)) if weighted else (images, labels)


def _are_local(weights: str) -> bool:
    """Whether weights can be loaded without a download."""
    return Path(local_folder(weights)).exists() or cache_path(weights).is_file()


def _assumption(recipe) -> str:
    return (
        f"The weights {recipe.weights} are not on this machine: the architecture of the recipe was assumed, "
        f"{recipe.architecture.variant}. For another pass --weights None and --architecture.variant."
    )


class ModelPrograms(StepPrograms):
    """The inference step of any `keras.Model`, and its training step if it is compiled.

    The label of an image is a scalar int32 for a loss with "sparse" or "softmax" in its name, else float32 of the shape
    of the model's outputs.
    """

    def __init__(self, model: keras.Model, replicas: int = 1):
        if not model.built:
            raise ValueError(f"{model.name} has no weights yet. Build it, or call it on a batch, before a preflight.")
        self.model, self.replicas = model, replicas
        self.kinds = ("inference",)
        if getattr(model, "optimizer", None):
            model.optimizer.build(model.trainable_variables)
            self.kinds = ("training", "inference")

    def batch_specs(self, kind, batch_size):
        inputs = _floats(batch_size, *self._input_shape())
        return (inputs, self._labels(batch_size)) if kind == "training" else (inputs,)

    def _input_shape(self):
        size = getattr(self.model, "image_size", None)
        shape = (*size, 3) if size else self.model.input_shape[1:]
        if None in shape:
            raise ValueError(
                f"A TPU program requires static shapes. {self.model.name} takes inputs of shape {shape}: build it for "
                "one size."
            )
        return shape

    def _labels(self, batch_size):
        loss = self.model.loss
        name = loss if isinstance(loss, str) else getattr(loss, "name", type(loss).__name__)
        if "sparse" in name.lower() or "softmax" in name.lower():
            return tf.TensorSpec((batch_size,), tf.int32)
        return _floats(batch_size, *self.model.compute_output_shape((batch_size, *self._input_shape()))[1:])


def _floats(*shape):
    return tf.TensorSpec(shape, tf.float32)
