"""`preflight`: compiles the steps of a recipe or a model for a TPU that is not attached."""

import math
from collections.abc import Callable

import keras

from keras_vit.recipes.configs.vtab import TASKS
from keras_vit.recipes.data import count_examples, open_dataset
from keras_vit.recipes.data.datasets import DIGITS_SPLITS
from keras_vit.recipes.data.image_dataset import split_ranges
from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.preflight.compile_steps import compile_steps
from keras_vit.recipes.preflight.report import Report, StepReport, parse_topology
from keras_vit.recipes.preflight.step_programs import ModelPrograms, RecipePrograms, StepPrograms
from keras_vit.recipes.recipe import Data, Recipe
from keras_vit.recipes.recipe.checks import check_plan
from keras_vit.recipes.recipe.errors import check_all
from keras_vit.recipes.runs.open_run import check_backend, check_precision
from keras_vit.recipes.training.accumulation import check_batch_size

UNKNOWN_TOTAL_STEPS = 1_000_000  # any number: the schedule does not change the cost of a step


def preflight(
    subject: Recipe | keras.Model,
    topology: str = "v5e:2x4",
    device_batch_size: int | None = None,
    *,
    kinds: tuple[str, ...] | None = None,
    num_classes: int | None = None,
    num_train_images: int | None = None,
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
        programs = ModelPrograms(subject, tpu_slice.replicas)
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
    batch_size = subject.data.batch_size if device_batch_size is None else device_batch_size * replicas
    check_batch_size(batch_size, replicas, subject.optimizer.accumulation_steps)
    return batch_size // replicas, batch_size == subject.data.batch_size


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
    sizes = num_classes, num_images
    if not (num_classes and num_images):
        try:
            sizes = dataset_size(recipe.data)
        except (ValueError, OSError):  # the dataset is elsewhere
            if not num_classes:
                raise
    num_classes, num_images = num_classes or sizes[0], num_images or sizes[1]
    if recipe.data.labels_per_class:
        num_images = recipe.data.labels_per_class * num_classes
    if recipe.total_steps:
        return num_classes, recipe.total_steps
    return num_classes, num_images and round(recipe.total_epochs * num_images / recipe.data.batch_size)


# Section 4.1 of the paper; the classes of ImageNet-21k are those of the published checkpoints.
KNOWN_SIZES = {
    "imagenet2012": (1_000, 1_281_167),
    "imagenet2012_real": (1_000, 1_281_167),
    "tfrecord:gs://your-bucket/imagenet21k": (21_843, 14_197_122),
    "tfrecord:gs://your-bucket/jft": (18_291, 303_000_000),
    "cifar10": (10, 50_000),
    "cifar100": (100, 50_000),
    "oxford_iiit_pet": (37, 3_680),
    "oxford_flowers102": (102, 1_020),
    "digits": (10, DIGITS_SPLITS["train"]),
}


def dataset_size(data: Data) -> tuple[int, int]:
    """Number of classes and of images of the training split, such as "train[:98%]". Nothing is downloaded."""
    if data.dataset in KNOWN_SIZES:
        num_classes, images = KNOWN_SIZES[data.dataset]
        ranges = split_ranges({"train": images}, data.train_split, data.dataset)
        return num_classes, sum(end - start for _, start, end in ranges)
    if data.dataset.startswith("vtab/") and (task := TASKS.get(data.dataset.removeprefix("vtab/"))):
        return task.num_classes, 1_000
    if data.dataset.startswith(("folder:", "csv:", "tfrecord:")):
        dataset = open_dataset(data)
        return len(dataset.class_names), count_examples(dataset, data.train_split)
    raise ValueError(
        f"The size of the dataset {data.dataset!r} is unknown. Pass --num-classes, and --num-train-images for the "
        f"cost of the whole recipe. Known: {', '.join(name for name in KNOWN_SIZES if ':' not in name)}, vtab/<task>."
    )


LANES, SUBLANES = 128, 8
MIN_REPORTED = 0.1  # fraction of padding


def tiling_notes(model, batch_size: int) -> list[str]:
    """Notes about sizes of a `VisionTransformer` that are padded by a tenth or more, with better sizes."""
    config = getattr(model, "config", None)
    notes = []
    if batch_size % SUBLANES:
        better = max(SUBLANES, round(batch_size / SUBLANES) * SUBLANES)
        notes.append(f"{batch_size} images per device is not a multiple of {SUBLANES}; use {better}.")
    if config is None or not hasattr(config, "mlp_dim"):
        return notes
    for name in ("width", "mlp_dim"):
        size = getattr(config, name)
        if padding_fraction(size) >= MIN_REPORTED:
            notes.append(f"{name} {size}: {padding_fraction(size):.0%} of its arrays is padding; use {padded(size)}.")
    notes += _token_notes(model)
    head = config.width // config.num_heads
    if padding_fraction(head) >= MIN_REPORTED:
        notes.append(f"Heads of width {head} leave {padding_fraction(head):.0%} of the matrix unit idle in attention.")
    return notes


def padding_fraction(size: int) -> float:
    """Fraction of the padded dimension that is padding."""
    return 1.0 - size / padded(size)


def padded(size: int) -> int:
    """The next multiple of 128."""
    return -(-size // LANES) * LANES


def _token_notes(model):
    """The number of tokens is the minor dimension of the attention weights. Only square images are checked."""
    tokens = model.prefix_tokens + math.prod(model.grid)
    wasted = padding_fraction(tokens)
    if wasted < MIN_REPORTED or model.grid[0] != model.grid[1]:
        return []
    patch, grid = model.patch_size[0], model.grid[0]
    near = range(max(1, grid - max(2, grid // 4)), grid + max(2, grid // 4) + 1)
    fractions = {side * patch: padding_fraction(model.prefix_tokens + side * side) for side in near}
    best = sorted(fractions, key=lambda pixels: (fractions[pixels] > MIN_REPORTED, abs(pixels - grid * patch)))[:2]
    better = [f"{fractions[pixels]:.0%} with {pixels} px" for pixels in best if fractions[pixels] < wasted]
    ending = f"; {', '.join(better)}" if better else ""
    return [f"With {tokens} tokens {wasted:.0%} of the memory of attention weights is padding{ending}."]


GRANULARITY = 8  # sublanes of a tile
MAX_COMPILATIONS = 10


def largest_batch(compile_step: Callable[[int], StepReport], granularity: int = GRANULARITY) -> int:
    """The largest multiple of `granularity` found to fit within ten compilations; 0 if none fits.

    Memory grows nearly linearly with the batch, so two compilations predict the limit and a few more confirm it.
    """
    required: dict[int, float | None] = {}  # bytes by batch size; None where the compiler ran out of memory
    fits, too_large, guess = 0, None, 4 * granularity
    for _ in range(MAX_COMPILATIONS):
        report = compile_step(guess)
        if report.problems and not any("RESOURCE_EXHAUSTED" in problem for problem in report.problems):
            raise ValueError(f"The step cannot run at any batch size: {report.problems[0]}")
        required[guess] = report.required_memory if report.memory else None
        if report.fits:
            fits = max(fits, guess)
        else:
            too_large = guess if too_large is None else min(too_large, guess)
        if too_large is not None and too_large - fits <= granularity:
            break
        guess = _next_guess(required, report.memory_limit, fits, too_large, granularity)
    return fits


def _next_guess(required, limit, fits, too_large, granularity):
    """Extrapolates from the last two batches while everything fits, then bisects.

    Near the limit the compiler trades computation for memory and growth is no longer linear, so the extrapolation is
    capped.
    """
    if too_large is not None:
        return max(granularity, (fits + too_large) // 2 // granularity * granularity)
    if len(required) == 1:
        return 2 * fits
    (small, less), (big, more) = sorted(required.items())[-2:]
    guess = big + (limit - more) / max(1.0, (more - less) / (big - small))
    guess = min(guess, 1.25 * fits if more > 0.9 * limit else 4 * fits)
    # At least one step beyond what is known to fit, to confirm the limit.
    return max(int(guess) // granularity * granularity, fits + granularity)
