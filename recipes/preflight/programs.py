"""The steps of a recipe, lowered for a TPU. B batch of a device, C classes."""

from dataclasses import replace

import tensorflow as tf

from keras_vit.recipes.masked_patch.model import masked_patch_batches
from keras_vit.recipes.preflight import steps
from keras_vit.recipes.preflight.lower import Program, lower
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.compiled_model import classifier_trainee, masked_patch_trainee


class RecipePrograms:
    """A recipe's model, and its steps, whose names are `kinds`, for any batch that `parts` divides.

    Weights of a former training do not change what a step costs: they are not loaded, and the model is that of the
    recipe's architecture.

    Args:
        recipe: What would be trained.
        classes: Their number, C.
        updates: Of the whole recipe.
        replicas: Devices that train together.
    """

    def __init__(self, recipe, classes: int, updates: int, replicas: int):
        self.recipe, self.classes, self.replicas = recipe, classes, replicas
        if isinstance(recipe, MaskedPatch):
            self.model = masked_patch_trainee(recipe)
            self.kinds = ("training",)
        else:
            self.model, _ = classifier_trainee(replace(recipe, weights=None), classes, updates)
            self.kinds = ("training", "evaluation")
        self.parts = recipe.optimizer.accumulation_steps
        accumulate_gradients(self.model, self.parts)

    def lower(self, kind: str, batch: int) -> Program:
        """The program of a step of B images a device."""
        if kind == "evaluation":
            return lower(steps.evaluation_step(self.model), self._specs(batch, mixed=False) + (_floats(batch),))
        with steps.summed_over(self.model, self.replicas):
            return lower(steps.training_step(self.model), self._specs(batch, mixed=True))

    def _specs(self, batch, mixed):
        data = self.recipe.data
        images = _floats(batch, data.image_size, data.image_size, 3)
        labels = tf.TensorSpec((batch,), tf.int64)
        if isinstance(self.recipe, MaskedPatch):
            shapes = tf.data.Dataset.range(1).map(lambda _: (tf.zeros(images.shape), tf.zeros(batch, tf.int64)))
            return masked_patch_batches(shapes, self.model.vit.patch_size, self.recipe).element_spec
        if mixed and (data.augment.mixup_alpha or data.augment.cutmix_alpha):
            labels = _floats(batch, self.classes)
        return images, labels


class ModelPrograms:
    """The steps of any `keras.Model`: of inference, and of training if it is compiled.

    Args:
        model: Built.
        labels: tf.TensorSpec of the labels of one image; by default (), int32, for a loss with "sparse" or "softmax"
            in its name, else those of the model's outputs.
        replicas: Devices that train together.
    """

    def __init__(self, model, labels: tf.TensorSpec | None = None, replicas: int = 1):
        if not model.built:
            raise ValueError(f"{model.name} has no weights yet. Build it, or call it on a batch, before a preflight.")
        self.model, self.labels, self.replicas, self.parts = model, labels, replicas, 1
        self.kinds = ("training", "inference") if getattr(model, "optimizer", None) else ("inference",)

    def lower(self, kind: str, batch: int) -> Program:
        """The program of a step of B images a device."""
        inputs = _floats(batch, *self._input_shape())
        if kind == "inference":
            return lower(steps.inference_step(self.model), (inputs,))
        with steps.summed_over(self.model, self.replicas):
            return lower(steps.training_step(self.model), (inputs, self._labels(batch)))

    def _input_shape(self):
        size = getattr(self.model, "image_size", None)
        shape = (*size, 3) if size else self.model.input_shape[1:]
        if None in shape:
            raise ValueError(f"A TPU's program has one shape. {self.model.name} takes {shape}: make it for one size.")
        return shape

    def _labels(self, batch):
        if self.labels is not None:
            return tf.TensorSpec((batch, *self.labels.shape), self.labels.dtype)
        loss = self.model.loss
        name = loss if isinstance(loss, str) else getattr(loss, "name", type(loss).__name__)
        if "sparse" in name.lower() or "softmax" in name.lower():
            return tf.TensorSpec((batch,), tf.int32)
        return _floats(batch, *self.model.compute_output_shape((batch, *self._input_shape()))[1:])


def _floats(*shape):
    return tf.TensorSpec(shape, tf.float32)
