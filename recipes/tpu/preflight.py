"""Compiles the steps of a recipe or a model for a TPU that is not there."""

import functools
import re

import keras

from keras_vit.recipes.accumulation import check_parts
from keras_vit.recipes.recipe import MaskedPatch
from keras_vit.recipes.tpu import cache, compiler
from keras_vit.recipes.tpu.chips import parse_topology
from keras_vit.recipes.tpu.data_size import data_size
from keras_vit.recipes.tpu.largest_batch import largest_batch
from keras_vit.recipes.tpu.live_memory import fullest_moment, layer_of
from keras_vit.recipes.tpu.process import compile_elsewhere
from keras_vit.recipes.tpu.programs import ModelPrograms, RecipePrograms
from keras_vit.recipes.tpu.report import Report, StepReport
from keras_vit.recipes.tpu.tiling import tiling_notes


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
        batch: Pictures a device; by default a recipe's batch, shared by all devices.
        kinds: Of steps: "training", "evaluation" (of recipes), "inference" (of models); by default all there are.
        classes, pictures: Of a recipe's data set, where it is neither known nor here.
        labels: Of a model's training, see `ModelPrograms`.
        find_largest: Also look for the largest batch of a device, for each kind.
        say: Is told what is going on.

    Returns:
        The report. A step that does not compile has its reason there.

    Raises:
        ValueError: The topology is unknown, a batch does not go into the devices, or a size is not known.
        ImportError: jax or libtpu is missing or of another version than was tested.
        RuntimeError: The compiler crashed.
    """
    compiler.check_versions()
    place = parse_topology(topology)
    updates = None
    if isinstance(subject, keras.Model):
        programs = ModelPrograms(subject, labels, place.replicas)
        name, precision = subject.name, subject.dtype_policy.name
        if batch is None:
            raise ValueError("Say the batch: how many pictures a device gets in a step.")
    else:
        classes, updates = _sizes(subject, classes, pictures)
        if batch is None:
            check_parts(subject.data.batch_size, place.replicas, subject.optimizer.accumulation_steps)
            batch = subject.data.batch_size // place.replicas
        say("building the model")
        programs = RecipePrograms(subject, classes, updates or 1_000_000, place.replicas)
        name, precision = f"{type(subject).__name__} {subject.architecture.variant}", subject.run.precision
    measure = functools.partial(_measure, programs, place, say)
    kinds = kinds or programs.kinds
    steps = tuple(measure(kind, batch) for kind in kinds)
    return Report(
        name=name,
        topology=place,
        precision=precision,
        parameters=programs.model.count_params(),
        steps=steps,
        updates=updates,
        notes=tuple(tiling_notes(getattr(programs.model, "vit", programs.model), batch)),
        largest={kind: largest_batch(functools.partial(measure, kind)) for kind in kinds} if find_largest else {},
    )


def _sizes(recipe, classes, pictures):
    """Classes, and updates of the whole recipe (None if it says epochs of a number of pictures that is not known)."""
    found = (classes, pictures) if classes else data_size(recipe.data)
    classes, pictures = classes or found[0], pictures or found[1]
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
