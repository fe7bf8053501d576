"""`preflight`: compiles the steps of a recipe or a model for a TPU that is not attached."""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.preflight.chips import parse_topology
from keras_vit.recipes.preflight.compile_steps import compile_steps
from keras_vit.recipes.preflight.dataset_sizes import dataset_size
from keras_vit.recipes.preflight.largest_batch import GRANULARITY, largest_batch
from keras_vit.recipes.preflight.report import Report
from keras_vit.recipes.preflight.step_programs import ModelPrograms, RecipePrograms, StepPrograms
from keras_vit.recipes.preflight.tiling import tiling_notes
from keras_vit.recipes.recipe import Recipe
from keras_vit.recipes.recipe_checks import check_plan
from keras_vit.recipes.recipe_errors import check_all
from keras_vit.recipes.training.accumulation import check_batch_size
from keras_vit.recipes.training.checks import check_backend, check_precision

UNKNOWN_TOTAL_STEPS = 1_000_000  # any number: the schedule does not change the cost of a step


def preflight(
    subject: Recipe | keras.Model,
    topology: str = "v5e:2x4",
    device_batch_size: int | None = None,
    *,
    kinds: tuple[str, ...] | None = None,
    num_classes: int | None = None,
    num_train_images: int | None = None,
    label_spec: tf.TensorSpec | None = None,
    find_largest_batch: bool = False,
    log: Callable[[str], object] = lambda text: None,
) -> Report:
    """Compiles the actual steps with the actual compiler, in a separate process. Results are stored on disk.

    Args:
        subject: A recipe, or a built `keras.Model`, whose training step is included if it is compiled.
        topology: A slice, such as "v5e:2x4", or a single chip: "v5e:1".
        device_batch_size: Images per device. Defaults to the recipe's global batch size divided by the number of
            devices. The cost of the whole recipe is only computed for its own global batch size.
        kinds: Steps to compile: "training", "evaluation" (recipes), "inference" (models). Defaults to all of them.
        num_classes, num_train_images: Those of the recipe's dataset, if it is neither known nor present.
        label_spec: Labels that a model trains on, see `ModelPrograms`.
        find_largest_batch: Also search for the largest per-device batch of each kind.
        log: Called with progress messages.

    Returns:
        The report. For a step that does not compile it contains the reason.

    Raises:
        ValueError: The topology, a kind or the dataset's size is unknown, the batch size is below 1 or indivisible, or
            fields of the recipe do not fit together.
        ImportError: jax or libtpu is missing or has an untested version.
        ChildProcessError: The compiler crashed.
    """
    if not isinstance(subject, keras.Model):
        check_all(
            lambda: check_plan(subject),
            lambda: check_backend(subject),
            lambda: check_precision(subject.run, is_tpu=True),
        )
    compiler.check_versions()
    tpu_slice = parse_topology(topology)
    batch_size, is_recipes_batch = _batch_size(subject, device_batch_size, tpu_slice.replicas)
    total_steps = None
    programs: StepPrograms
    if isinstance(subject, keras.Model):
        name, precision = subject.name, subject.dtype_policy.name
        programs = ModelPrograms(subject, label_spec, tpu_slice.replicas)
    else:
        num_classes, total_steps = _sizes(subject, num_classes, num_train_images)
        log("building the model")
        programs = RecipePrograms(subject, num_classes, total_steps or UNKNOWN_TOTAL_STEPS, tpu_slice.replicas)
        name, precision = f"{type(subject).__name__} {programs.architecture}", subject.run.precision
    kinds = _kinds(kinds, programs)
    steps = compile_steps(programs, kinds, batch_size, tpu_slice, log)
    notes = tiling_notes(getattr(programs.model, "vit", programs.model), batch_size)
    searched = kinds if find_largest_batch else ()
    return Report(
        name=name,
        topology=tpu_slice,
        precision=precision,
        num_parameters=programs.model.count_params(),
        steps=steps,
        total_steps=total_steps if is_recipes_batch else None,
        notes=(*programs.notes, *notes, *_cost_notes(subject, is_recipes_batch, total_steps)),
        largest_batch={kind: _largest_batch(programs, kind, tpu_slice, log) for kind in searched},
    )


def _largest_batch(programs, kind, tpu_slice, log) -> int:
    granularity = math.lcm(GRANULARITY, programs.accumulation_steps)
    return largest_batch(lambda batch: compile_steps(programs, (kind,), batch, tpu_slice, log)[0], granularity)


def _batch_size(subject, device_batch_size, replicas) -> tuple[int, bool]:
    """Images per device, and whether all devices together process a recipe's global batch."""
    if device_batch_size is not None and device_batch_size < 1:
        raise ValueError(f"`device_batch_size` must be at least 1. Received: {device_batch_size}")
    if isinstance(subject, keras.Model):
        if device_batch_size is None:
            raise ValueError("Pass `device_batch_size`, the number of images per device in a step.")
        return device_batch_size, False
    if device_batch_size is None:
        check_batch_size(subject.data.batch_size, replicas, subject.optimizer.accumulation_steps)
        return subject.data.batch_size // replicas, True
    return device_batch_size, device_batch_size * replicas == subject.data.batch_size


def _kinds(kinds, programs) -> tuple[str, ...]:
    if not kinds:
        return programs.kinds
    if isinstance(kinds, str) or not set(kinds) <= set(programs.kinds):
        raise ValueError(
            f"`kinds` must be a tuple of {', '.join(programs.kinds)}; a model has a training step if it is compiled. "
            f"Received: {kinds!r}"
        )
    return tuple(kinds)


def _cost_notes(subject, is_recipes_batch, total_steps):
    if isinstance(subject, keras.Model):
        return
    if is_recipes_batch and not total_steps:
        yield (
            f"The number of training images of {subject.data.dataset!r} is unknown, and so is the cost of the whole "
            "recipe: pass --num-train-images."
        )
    if not is_recipes_batch:
        yield (
            f"The recipe's global batch size is {subject.data.batch_size:,}, these steps use another: the cost of the "
            "whole recipe is unknown."
        )


def _sizes(recipe, num_classes, num_images):
    """Number of classes, and total steps of the recipe (None if it depends on an unknown number of images)."""
    found = num_classes, num_images
    if not (num_classes and num_images):
        try:
            found = dataset_size(recipe.data)
        except (ValueError, OSError):  # the dataset is elsewhere
            if not num_classes:
                raise
    num_classes, num_images = num_classes or found[0], num_images or found[1]
    if recipe.data.labels_per_class:
        num_images = recipe.data.labels_per_class * num_classes
    if recipe.total_steps:
        return num_classes, recipe.total_steps
    return num_classes, num_images and round(recipe.total_epochs * num_images / recipe.data.batch_size)
