"""Compiles the steps of a recipe or a model for a TPU that is not there."""

import math

import keras

from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.preflight.chips import parse_topology
from keras_vit.recipes.preflight.data_size import data_size
from keras_vit.recipes.preflight.largest_batch import STEP, largest_batch
from keras_vit.recipes.preflight.measure import measure
from keras_vit.recipes.preflight.programs import ModelPrograms, RecipePrograms
from keras_vit.recipes.preflight.report import Report
from keras_vit.recipes.preflight.tiling import tiling_notes
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.training.accumulation import check_parts


def preflight(
    subject,
    topology: str = "v5e:2x4",
    batch: int | None = None,
    *,
    kinds: tuple[str, ...] | None = None,
    classes: int | None = None,
    num_train_images: int | None = None,
    labels=None,
    find_largest: bool = False,
    say=lambda text: None,
) -> Report:
    """Compiles the real steps with the real compiler, in a process of its own. Answers are kept on disk.

    Args:
        subject: A recipe, or a built `keras.Model`; one that is compiled has a training step too.
        topology: A slice, such as "v5e:2x4", or one chip: "v5e:1".
        batch: Images a device; by default a recipe's batch, shared by all devices. With any other the cost of the
            whole recipe is not known.
        kinds: Of steps: "training", "evaluation" (of recipes), "inference" (of models); by default all there are.
        classes, num_train_images: Of a recipe's data set, where it is neither known nor here.
        labels: Of a model's training, see `ModelPrograms`.
        find_largest: Also look for the largest batch of a device, for each kind.
        say: Is told what is going on.

    Returns:
        The report. A step that does not compile has its reason there.

    Raises:
        ValueError: The topology or a kind is unknown, a batch is below 1 or does not go into the devices, or a size is
            not known.
        ImportError: jax or libtpu is missing or of another version than was tested.
        ChildProcessError: The compiler crashed.
    """
    compiler.check_versions()
    place = parse_topology(topology)
    batch, whole = _batch(subject, batch, place.replicas)
    updates = None
    if isinstance(subject, keras.Model):
        programs = ModelPrograms(subject, labels, place.replicas)
        name, precision = subject.name, subject.dtype_policy.name
    else:
        classes, updates = _sizes(subject, classes, num_train_images)
        say("building the model")
        programs = RecipePrograms(subject, classes, updates or 1_000_000, place.replicas)
        name, precision = f"{type(subject).__name__} {subject.architecture.variant}", subject.run.precision
    kinds = _kinds(kinds, programs)
    steps = measure(programs, kinds, batch, place, say)
    notes = tiling_notes(getattr(programs.model, "vit", programs.model), batch)
    step = math.lcm(STEP, programs.parts)
    return Report(
        name=name,
        topology=place,
        precision=precision,
        parameters=programs.model.count_params(),
        steps=steps,
        updates=updates if whole else None,
        notes=(*notes, *_cost_notes(subject, whole)),
        largest={kind: _largest(programs, kind, place, say, step) for kind in kinds} if find_largest else {},
    )


def _batch(subject, batch, replicas) -> tuple[int, bool]:
    """Images a device, and whether all devices together have a recipe's batch."""
    if batch is not None and batch < 1:
        raise ValueError(f"A device gets at least one image in a step. Received: batch={batch}")
    if isinstance(subject, keras.Model):
        if batch is None:
            raise ValueError("Say the batch: how many images a device gets in a step.")
        return batch, False
    if batch is None:
        check_parts(subject.data.batch_size, replicas, subject.optimizer.accumulation_steps)
        return subject.data.batch_size // replicas, True
    return batch, batch * replicas == subject.data.batch_size


def _kinds(kinds, programs) -> tuple[str, ...]:
    if not kinds:
        return programs.kinds
    if isinstance(kinds, str) or not set(kinds) <= set(programs.kinds):
        raise ValueError(
            f"`kinds` must be a tuple of {', '.join(programs.kinds)} here; a model has a training step if it is "
            f"compiled. Received: {kinds!r}"
        )
    return tuple(kinds)


def _cost_notes(subject, whole):
    if not whole and not isinstance(subject, keras.Model):
        yield (
            f"An update of the recipe is of {subject.data.batch_size:,} images, these steps are of another number: "
            "what the whole recipe costs is not known."
        )


def _sizes(recipe, classes, images):
    """Classes, and updates of the whole recipe (None if it says epochs of a number of images that is not known)."""
    found = (classes, images) if classes else data_size(recipe.data)
    classes, images = classes or found[0], images or found[1]
    if recipe.data.labels_per_class:
        images = recipe.data.labels_per_class * classes
    if isinstance(recipe, MaskedPatch) or recipe.total_steps:
        return classes, recipe.total_steps
    return classes, images and round(recipe.total_epochs * images / recipe.data.batch_size)


def _largest(programs, kind, place, say, step):
    return largest_batch(lambda batch: measure(programs, (kind,), batch, place, say)[0], step)
