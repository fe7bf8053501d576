"""The settings of `keras-vit finetune`: chosen from the folder of images, the weights and the machine, and printed."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit import BiT
from keras_vit.images import as_size
from keras_vit.messages import first_names
from keras_vit.progress import duration
from keras_vit.recipes.configs.finetune import SMALL
from keras_vit.recipes.configs.small_folder import Machine, fit_to_folder, image_size, total_epochs, training_seconds
from keras_vit.recipes.data import ImageDataset, count_examples, training_pixels
from keras_vit.recipes.recipe import Architecture, Data, Supervised
from keras_vit.recipes.training.model import check_trainable
from keras_vit.variants import SIZES, variant_name
from keras_vit_cli.commands.finetune.folds import fold_recipes
from keras_vit_cli.commands.finetune.images import LONG, ImageFolder, typical_part
from keras_vit_cli.image_files import notes_on_range
from keras_vit_cli.recipe_options import recipe_flags

NAME = "finetune-small"  # of SMALL
TIMED_IMAGES = 16  # a batch as in training: single images use less of a machine
REPEATS = 2


def choose_recipe(
    folder: ImageFolder,
    weights: str,
    model,
    output: Path,
    base: Supervised = SMALL,
    resize_is_stated: bool = False,
    size: int | tuple[int, int] | None = None,
) -> Supervised:
    """The recipe for a folder; prints it, with the estimated time, as a command that repeats the training.

    `model` is loaded from `weights`, without a head; `output` is the folder of the run; `base` has what the user chose;
    `size` is that of the images, by default as of `image_size`. Where a central crop shows too little of the images,
    they are squashed unless the resize is stated.
    """
    check_trainable(model)
    for note in [*folder.notes, *(notes_on_range(folder.files) if model.preprocessing.pixel_range is None else ())]:
        print(f"Note: {note}")
    accelerator = any(device.device_type in ("GPU", "TPU") for device in tf.config.list_physical_devices())
    size = size or image_size(model.preprocessing, accelerator, getattr(model, "patch_size", (1, 1)))
    if model.image_size != as_size(size):
        model = model.resized(size, name=model.name)
    recipe = replace(
        base,
        architecture=_architecture(model),
        weights=weights,
        data=folder.data,
        run=replace(SMALL.run, folder=str(output)),
    )
    images, depth = folder.count(folder.data.train_split), getattr(model.config, "depth", 0)
    machine = measure(model, recipe.data, folder.dataset, accelerator)
    recipe = fit_to_folder(recipe, images, model.preprocessing, size, depth, machine)
    part, (height, width) = typical_part(folder.files, as_size(size)), as_size(size)
    if part < LONG and recipe.data.evaluation_resize != "squash" and not resize_is_stated:
        shape = "square" if height == width else f"part of the shape {height} x {width}"
        print(
            f"Note: The central {shape} of a typical image is {part:.0%} of it. Images are squashed instead, also for "
            f"exported files; to crop them add --resize {recipe.data.evaluation_resize}; for a rectangle add "
            "--image-size HEIGHT WIDTH"
        )
        recipe = replace(recipe, data=replace(recipe.data, evaluation_resize="squash", evaluation_crop=1.0))
    print("\n".join(_description(folder, recipe, machine, depth)), flush=True)
    return recipe


def measure(model, data: Data, dataset: ImageDataset, accelerator: bool) -> Machine:
    """Times a model at the image size of the training, without its first call, and the decoding of training images."""
    inputs = np.zeros((TIMED_IMAGES, *model.image_size, 3), "float32")
    model.predict_on_batch(inputs)
    forward_seconds = _seconds(lambda: model.predict_on_batch(inputs), REPEATS)
    count, size = min(TIMED_IMAGES, count_examples(dataset, data.train_split)), model.image_size
    batches = training_pixels(replace(data, batch_size=count, image_size=size, resize_size=size), dataset, seed=0)
    decode_seconds = _seconds(lambda: list(batches.take(REPEATS)), 1) / REPEATS  # also prepares batches ahead
    return Machine(accelerator, forward_seconds / TIMED_IMAGES, decode_seconds / count)


def _seconds(call: Callable, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def train_command(recipe: Supervised) -> str:
    """The command that repeats a training in another folder."""
    run = replace(recipe.run, folder=f"{recipe.run.folder}-again", resume=False)
    again = replace(recipe, architecture=SMALL.architecture, run=run)  # the weights determine the architecture
    flags = recipe_flags(again, SMALL)
    lines = [f"keras-vit train {NAME}"]
    for flag in flags:
        if len(lines[-1]) + len(flag) > 110:
            lines.append("   ")
        lines[-1] += f" {flag}"
    return " \\\n".join(lines)


def _architecture(model) -> Architecture:
    """The architecture of weights as far as a recipe can state it, for recipe.json and a preflight of it."""
    config = asdict(model.config)
    name = variant_name(config)
    if isinstance(model, BiT):
        return replace(SMALL.architecture, variant=f"BiT-{name}") if name else SMALL.architecture
    if name:
        return replace(SMALL.architecture, variant=name)
    for size in SIZES.values():  # a variant with other sizes
        if name := variant_name({**config, **asdict(size)}):
            return replace(SMALL.architecture, variant=name, **{field: config[field] for field in asdict(size)})
    return SMALL.architecture


def _description(folder, recipe, machine: Machine, depth: int) -> list[str]:
    data, images = recipe.data, folder.count(recipe.data.train_split)
    names = folder.dataset.class_names
    epochs = recipe.total_steps * data.batch_size / images
    seconds = training_seconds(machine, epochs * images, depth or 1, recipe.trainable_blocks)
    tested = f"{folder.count(data.test_split):,} in the test set" if data.test_split else "each tested once, in folds"
    lines = [
        f"images    {images:,} to train on, {tested}; {len(names):,} classes: {first_names(names)}",
        f"weights   {recipe.weights}, {data.input_size[0]} x {data.input_size[1]} pixels, scaled by mean "
        f"{_numbers(data.mean)} and std {_numbers(data.std)}",
        f"training  {recipe.total_steps:,} steps of {data.batch_size} images, each image {epochs:.3g} times; about "
        f"{duration(seconds)}, estimated from a timed forward pass",
    ]
    if recipe.trainable_blocks is not None:
        whole = training_seconds(machine, total_epochs(images) * images, depth or 1)
        part = f"last {recipe.trainable_blocks} of {depth} blocks" if recipe.trainable_blocks else "head"
        lines.append(
            f"          of the {part} only: all of the model would take about {duration(whole)} on this CPU. To train "
            "all, append --trainable-blocks None to:"
        )
    if folds := fold_recipes(recipe):
        seen = sum(fold.total_steps * data.batch_size for fold in folds.values())  # type: ignore[operator]
        trainings = training_seconds(machine, seen, depth or 1, recipe.trainable_blocks)
        lines.append(
            f"folds     {len(folds)} trainings before that, each tested on the images that it omits; all together take "
            f"about {duration(seconds + trainings)}"
        )
    return [*lines, "\nThis command repeats the training:\n", train_command(recipe), ""]


def _numbers(values) -> str:
    return " ".join(f"{value:g}" for value in values)
