"""Compiles the steps of a recipe or a model for a TPU that is not there."""

import functools
import math
import re

import keras

from keras_vit.recipes.accumulation import check_parts
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.tpu import cache, compiler
from keras_vit.recipes.tpu.chips import parse_topology
from keras_vit.recipes.tpu.data_size import data_size
from keras_vit.recipes.tpu.largest_batch import STEP, largest_batch
from keras_vit.recipes.tpu.live_memory import fullest_moment, layer_of
from keras_vit.recipes.tpu.process import compile_elsewhere
from keras_vit.recipes.tpu.programs import ModelPrograms, RecipePrograms
from keras_vit.recipes.tpu.report import Report, StepReport
from keras_vit.recipes.tpu.tiling import tiling_notes

# Errors of the compiler that come again for the same program; others may be the machine's of that moment.
LASTING = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


def preflight(
    subject,
    topology: str = "v5e:2x4",
    batch: int | None = None,
    *,
    kinds: tuple[str, ...] | None = None,
    classes: int | None = None,
    pictures: int | None = None,
    labels=None,
    find_largest: bool = False,
    say=lambda text: None,
) -> Report:
    """Compiles the real steps with the real compiler, in a process of its own. Answers are kept on disk.

    Args:
        subject: A recipe, or a built `keras.Model`; one that is compiled has a training step too.
        topology: A slice, such as "v5e:2x4", or one chip: "v5e:1".
        batch: Pictures a device; by default a recipe's batch, shared by all devices. With any other the cost of the
            whole recipe is not known.
        kinds: Of steps: "training", "evaluation" (of recipes), "inference" (of models); by default all there are.
        classes, pictures: Of a recipe's data set, where it is neither known nor here.
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
        classes, updates = _sizes(subject, classes, pictures)
        say("building the model")
        programs = RecipePrograms(subject, classes, updates or 1_000_000, place.replicas)
        name, precision = f"{type(subject).__name__} {subject.architecture.variant}", subject.run.precision
    kinds = _kinds(kinds, programs)
    measure = functools.partial(_measure, programs, place, say)
    steps = tuple(measure(kind, batch) for kind in kinds)
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
        largest={kind: largest_batch(functools.partial(measure, kind), step) for kind in kinds} if find_largest else {},
    )


def _batch(subject, batch, replicas) -> tuple[int, bool]:
    """Pictures a device, and whether all devices together have a recipe's batch."""
    if batch is not None and batch < 1:
        raise ValueError(f"A device gets at least one picture in a step. Received: batch={batch}")
    if isinstance(subject, keras.Model):
        if batch is None:
            raise ValueError("Say the batch: how many pictures a device gets in a step.")
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
            f"An update of the recipe is of {subject.data.batch_size:,} pictures, these steps are of another number: "
            "what the whole recipe costs is not known."
        )


def _sizes(recipe, classes, pictures):
    """Classes, and updates of the whole recipe (None if it says epochs of a number of pictures that is not known)."""
    found = (classes, pictures) if classes else data_size(recipe.data)
    classes, pictures = classes or found[0], pictures or found[1]
    if recipe.data.labels_per_class:
        pictures = recipe.data.labels_per_class * classes
    if isinstance(recipe, MaskedPatch) or recipe.total_steps:
        return classes, recipe.total_steps
    return classes, pictures and round(recipe.total_epochs * pictures / recipe.data.batch_size)


def _measure(programs, place, say, kind, batch) -> StepReport:
    say(f"tracing the {kind} step of {batch} pictures a device")
    program = programs.lower(kind, batch)
    # An evaluation exchanges nothing between devices.
    replicas = place.replicas if kind == "training" else 1
    common = {"kind": kind, "batch": batch, "limit": place.chip.memory, "peak": place.chip.peak}
    common["bandwidth"] = place.chip.bandwidth
    if program.problems:
        return StepReport(**common, problems=program.problems)
    key = cache.key_of(program.hlo, place.name, replicas, compiler.check_versions())
    answer = cache.read(key)
    if answer is None:
        answer = compile_elsewhere(program.hlo, place.name, replicas, say)
        schedule = answer.pop("schedule")
        if schedule:
            answer["layers"] = fullest_moment(schedule)[1]
        if "error" not in answer or any(kind in answer["error"] for kind in LASTING):
            cache.write(key, answer)
    else:
        answer |= {"seconds": 0.0}
    taken = {"seconds": answer["seconds"], "compiler_memory": answer["peak_memory"]}
    if "error" in answer:
        return StepReport(**common, **taken, problems=(_reason(answer["error"]),))
    layers = tuple((layer, size) for layer, size in answer["layers"])
    figures = {name: answer[name] for name in ("memory", "flops", "bytes")}
    return StepReport(**common, **taken, **figures, layers=layers)


def _reason(error):
    """The compiler's words without what is for its own developers, the layer if they name one, and what helps."""
    words = error.partition("\n")[0].partition("HLO module:")[0].strip()
    layers = [layer_of(name) for name in re.findall(r'op_name="([^"]+)"', error)]
    if any(layers):
        words += f" It is about {', '.join(dict.fromkeys(filter(None, layers)))}."
    if "RESOURCE_EXHAUSTED" in words:
        words += " Take fewer pictures a device (--largest-batch says how many), or run.remat='block' for a ViT."
    return words
