"""The steps of a recipe or a model, lowered to HLO. B images per device, C classes."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from keras_vit.recipes.preflight.lowering import HloProgram, lower_to_hlo, lower_with_jax
from keras_vit.recipes.self_supervised import compile_self_supervised, self_supervised_batches
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.compile import compile_classifier
from keras_vit.trained import local_folder
from keras_vit.weights.downloads import cache_path


class StepPrograms(Protocol):
    """What `RecipePrograms` and `ModelPrograms` have in common.

    Attributes:
        model: The model whose steps are lowered.
        kinds: Names of the steps.
        accumulation_steps: B must be a multiple of it.
        notes: Hints for the report.
    """

    model: keras.Model
    kinds: tuple[str, ...]
    accumulation_steps: int
    notes: tuple[str, ...]

    def lower(self, kind: str, batch_size: int) -> HloProgram:
        """The program of a step with B images per device."""


MULTI_LABEL = "csv:"  # of other datasets, only their files tell whether images have several labels


class RecipePrograms:
    """The training and evaluation step of a recipe.

    Weights determine the model, so those on this machine are loaded, as in training. Others are not downloaded: the
    model then has the recipe's architecture.

    Args:
        recipe: The recipe.
        num_classes: C.
        total_steps: Steps of the whole recipe, for the schedule.
        replicas: Number of devices that train together.

    Attributes:
        architecture: What the model is: the recipe's variant, or the weights.
        notes: Says so if the recipe's architecture was assumed.
    """

    def __init__(self, recipe, num_classes: int, total_steps: int, replicas: int):
        self.recipe, self.num_classes, self.replicas = recipe, num_classes, replicas
        self.kinds: tuple[str, ...]
        self.notes: tuple[str, ...] = ()
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
        self.accumulation_steps = recipe.optimizer.accumulation_steps
        accumulate_gradients(self.model, self.accumulation_steps, replicas)

    def lower(self, kind: str, batch_size: int) -> HloProgram:
        """The program of a step with B images per device."""
        if keras.backend.backend() == "jax":
            mixed, more = (True, ()) if kind == "training" else (False, (_floats(batch_size),))
            return lower_with_jax(self.model, kind, (*self._specs(batch_size, mixed), *more), self.replicas)
        if kind == "evaluation":
            specs = self._specs(batch_size, mixed=False) + (_floats(batch_size),)
            return lower_to_hlo(evaluation_step(self.model), specs)
        with cross_replica_sums(self.replicas):
            return lower_to_hlo(training_step(self.model), self._specs(batch_size, mixed=True))

    def _specs(self, batch_size, mixed):
        data = self.recipe.data
        images = _floats(batch_size, data.image_size, data.image_size, 3)
        labels = tf.TensorSpec((batch_size,), tf.int64)
        if not self.recipe.has_labels:
            shapes = tf.data.Dataset.range(1).map(lambda _: (tf.zeros(images.shape), tf.zeros(batch_size, tf.int64)))
            return self_supervised_batches(shapes, self.model.vit.patch_size, self.recipe).element_spec
        if self.multi_label or (mixed and data.augment.mixes):
            labels = _floats(batch_size, self.num_classes)
        return images, labels


def _are_local(weights: str) -> bool:
    """Whether weights can be loaded without a download."""
    return Path(local_folder(weights)).exists() or cache_path(weights).is_file()


def _assumption(recipe) -> str:
    return (
        f"The weights {recipe.weights} are not on this machine: the architecture of the recipe was assumed, "
        f"{recipe.architecture.variant}. For another pass --weights None and --architecture.variant."
    )


class ModelPrograms:
    """The inference step of any `keras.Model`, and its training step if it is compiled.

    Args:
        model: A built model.
        label_spec: tf.TensorSpec of the label of one image. Defaults to a scalar int32 for a loss with "sparse" or
            "softmax" in its name, else to float32 of the shape of the model's outputs.
        replicas: Number of devices that train together.
    """

    def __init__(self, model: keras.Model, label_spec: tf.TensorSpec | None = None, replicas: int = 1):
        if not model.built:
            raise ValueError(f"{model.name} has no weights yet. Build it, or call it on a batch, before a preflight.")
        self.model, self.label_spec, self.replicas, self.accumulation_steps = model, label_spec, replicas, 1
        self.kinds: tuple[str, ...] = ("inference",)
        self.notes: tuple[str, ...] = ()
        if getattr(model, "optimizer", None):
            model.optimizer.build(model.trainable_variables)
            self.kinds = ("training", "inference")

    def lower(self, kind: str, batch_size: int) -> HloProgram:
        """The program of a step with B images per device."""
        inputs = _floats(batch_size, *self._input_shape())
        if keras.backend.backend() == "jax":
            labels = (self._labels(batch_size),) if kind == "training" else ()
            return lower_with_jax(self.model, kind, (inputs, *labels), self.replicas)
        if kind == "inference":
            return lower_to_hlo(inference_step(self.model), (inputs,))
        with cross_replica_sums(self.replicas):
            return lower_to_hlo(training_step(self.model), (inputs, self._labels(batch_size)))

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
        if self.label_spec is not None:
            return tf.TensorSpec((batch_size, *self.label_spec.shape), self.label_spec.dtype)
        loss = self.model.loss
        name = loss if isinstance(loss, str) else getattr(loss, "name", type(loss).__name__)
        if "sparse" in name.lower() or "softmax" in name.lower():
            return tf.TensorSpec((batch_size,), tf.int32)
        return _floats(batch_size, *self.model.compute_output_shape((batch_size, *self._input_shape()))[1:])


def _floats(*shape):
    return tf.TensorSpec(shape, tf.float32)


def training_step(model):
    """The step of `fit`: a function of (inputs, labels) that returns the metrics."""
    return lambda *data: model.train_step(data)


def evaluation_step(model):
    """The step of `evaluate`: a function of (inputs, labels, sample weights) that returns the metrics."""
    return lambda *data: model.test_step(data)


def inference_step(model):
    """The forward pass of `predict`: a function of the inputs."""
    return lambda inputs: model(inputs, training=False)


@contextmanager
def cross_replica_sums(replicas: int):
    """Within this context, traced steps sum over replicas as under `TPUStrategy`.

    Optimizers call `all_reduce` of the replica context for the gradients. Without a strategy it would do nothing; here
    it adds XLA's operation.

    Args:
        replicas: Number of devices that run the program together.

    Raises:
        ValueError: Called in a strategy's scope.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError("A preflight must be run outside of a strategy's scope.")
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op, value, options=None):
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"all_reduce supports SUM only. Received: {reduce_op}")
        return tf.nest.map_structure(lambda tensor: _xla_sum(tf.convert_to_tensor(tensor), replicas), value)

    context.all_reduce = all_reduce
    try:
        yield
    finally:
        del context.all_reduce


def _xla_sum(value, replicas):
    one_group = [list(range(replicas))]
    return gen_xla_ops.xla_all_reduce(value, group_assignment=one_group, reduce_op="Add", mode="CrossReplica")
