"""The settings of `keras-vit finetune`: chosen from the folder of images, the weights and the machine, and printed."""

import hashlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf

from keras_vit import BiT
from keras_vit.images import as_size
from keras_vit.messages import first_names
from keras_vit.progress import Progress, duration, show_progress
from keras_vit.recipes.configs.finetune import RECIPES, SMALL
from keras_vit.recipes.configs.small_folder import Machine, fit_to_folder, image_size, total_epochs, training_seconds
from keras_vit.recipes.data import ImageDataset, open_dataset, training_pixels
from keras_vit.recipes.data.arrays import read_arrays
from keras_vit.recipes.data.corrupt_images import mark_named
from keras_vit.recipes.data.image_folder import class_of, groups_of, open_folder
from keras_vit.recipes.recipe import Architecture, Data, Supervised
from keras_vit.recipes.training.model import check_trainable
from keras_vit.variants import SIZES, variant_name
from keras_vit_cli.commands.finetune.copies import GROUPS, unite_copies
from keras_vit_cli.commands.finetune.images import LONG, ImageFile, look_at, notes_on_range, typical_part
from keras_vit_cli.copies import describe_copies, find_copies, hash_files
from keras_vit_cli.recipe_options import recipe_flags

NAME = "finetune-small"  # of SMALL
TIMED_IMAGES = 16  # a batch as in training: single images use less of a machine
REPEATS = 2
# Names of splits that people use; the first that a folder has is taken.
TRAINING, TEST, VALIDATION = ("train", "training"), ("test", "testing"), ("validation", "valid", "val", "eval", "dev")
FEWEST, MOST = 30, 5_000  # images, as documented
MANY = "finetune-cifar100"  # the recipe for more
MAX_UNREADABLE = 0.1  # fraction of the files
NAMED = 10  # unreadable files that are named before the training


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images with its splits.

    Args:
        data: Fields of a recipe, with dataset and splits.
        dataset: The opened dataset.
        notes: What to know about the images, one sentence each.
        unreadable: Number of files of each split that are no images.
        copies: (test file, training file) of copies, see `find_copies`.
        groups: Of all images, if copies had to be united to keep them on one side of the split.
        files: The images.
    """

    data: Data
    dataset: ImageDataset
    notes: tuple[str, ...]
    unreadable: Counter[str]
    copies: tuple[tuple[str, str], ...] = ()
    groups: dict[str, str] | None = None
    files: tuple[ImageFile, ...] = ()

    def count(self, split: str) -> int:
        """Number of images of a split; 0 if the folder does not have it."""
        return self.dataset.splits.get(split, 0) - self.unreadable[split]


def open_images(folder: Path, data: Data) -> ImageFolder:
    """Opens a folder: /folder/<class>/<image>, or with splits, /folder/<split>/<class>/<image>.

    Its classes may also be in a single folder in it, as in an unpacked archive. Without a test set, about a
    fifth becomes one, see `split_by_hash`. Nothing on the disk is moved. All files are opened,
    not decoded, and those that are no images named. A ValueError lists all reasons why it cannot be trained on.
    """
    dataset, data = _with_splits(folder, data)
    total = sum(dataset.splits.values())
    show_progress(f"Reading {total:,} images")
    if total > MOST:
        print(_too_many(total, dataset, data), flush=True)
    problems, notes = [], []
    names = dataset.class_names
    examples = {split: _examples(dataset, split) for split in dataset.splits}
    counts = np.bincount(examples[data.train_split][1], minlength=len(names))
    if len(names) < 2:
        problems.append(
            f"{folder} has one class, {names[0]!r}. Expected a folder of images for each of several classes."
        )
    elif not dataset.splits.get(data.test_split):
        problems.append(f"Each class of {folder} has a single image, so that none is left to evaluate on. Add images.")
    elif few := [name for name, count in zip(names, counts, strict=True) if count < 2]:
        notes.append(f"At most one image to train on: {first_names(few)}. Add images of these classes.")
    progress = Progress("Reading images", total, "images")
    files = {split: dict(_look_at(names, progress)) for split, (names, _) in examples.items()}
    progress.end()
    unreadable = {split: [file for file, image in of_split.items() if not image] for split, of_split in files.items()}
    bad = [file for of_split in unreadable.values() for file in of_split]
    are_none = "is no image" if len(bad) == 1 else "are no images"
    if len(bad) > MAX_UNREADABLE * total:
        problems.append(f"{len(bad):,} of {total:,} files {are_none}. Remove them: {first_names(bad)}")
    elif bad:
        mark_named(dataset.name, bad[:NAMED])
        notes.append(f"{len(bad):,} of {total:,} files {are_none}; skipped: {first_names(bad, NAMED)}")
    if pairs := _in_two_classes(*(np.concatenate(arrays) for arrays in zip(*examples.values()))):
        images_are = "image is" if len(pairs) == 1 else "images are"
        notes.append(f"{len(pairs):,} {images_are} in two classes: {first_names(f'{a} = {b}' for a, b in pairs)}")
    if problems:
        raise ValueError("\n".join(problems))
    seen = [image for of_split in files.values() for image in of_split.values() if image]
    counts_of_bad = Counter({split: len(of_split) for split, of_split in unreadable.items()})
    images = ImageFolder(data, dataset, tuple(notes), counts_of_bad, files=tuple(seen))
    if total <= MOST:
        readable = {split: [file for file, image in of_split.items() if image] for split, of_split in files.items()}
        images = _without_copies(images, readable, bad)
    return replace(images, notes=(*images.notes, *_few_images(images)))


def _without_copies(images: ImageFolder, readable: dict[str, list[str]], bad: list[str]) -> ImageFolder:
    """Keeps copies on one side of a split that is made here, and notes those that are on both."""
    data, path = images.data, images.dataset.name.removeprefix("folder:").rstrip("/")
    hashes = hash_files([file for files in readable.values() for file in files])
    is_split_here = not (Path(path) / data.train_split).is_dir()
    if is_split_here:
        files = sorted(
            file.decode()[len(path) + 1 :] for split in readable for file in _examples(images.dataset, split)[0]
        )
        named = [(class_of(file), file) for file in files]
        groups = unite_copies(hashes, path, named, groups_of(path, data.group, named))
        if groups:
            united = len(named) - len({groups[file] for file in files})
            dataset = open_folder(path, images.dataset.name, groups, data.converted)
            note = (
                f"{united:,} images stay beside their copies, on one side of the split ({GROUPS} in the run's folder)"
            )
            examples = {split: {file.decode() for file in _examples(dataset, split)[0]} for split in dataset.splits}
            unreadable = Counter({split: len(names.intersection(bad)) for split, names in examples.items()})
            readable = {split: sorted(names.difference(bad)) for split, names in examples.items()}
            notes = (*images.notes, note)
            images = replace(images, dataset=dataset, unreadable=unreadable, notes=notes, groups=groups)
    training, test = ({file: hashes[file] for file in readable[split]} for split in (data.train_split, data.test_split))
    copies = tuple(find_copies(training, test))
    if not copies:
        return images
    note = (
        f"{describe_copies(copies, images.count(data.test_split))}. Remove the copies, or keep images that belong "
        "together on one side: --group, see keras-vit finetune --help"
    )
    return replace(images, copies=copies, notes=(*images.notes, note))


def _too_many(total, dataset, data) -> str:
    """What to use instead for more images than documented, printed before they are all opened."""
    recipe = RECIPES[MANY]
    splits = {name: getattr(data, name) for name in ("train_split", "validation_split", "test_split")}
    flags = recipe_flags(replace(recipe, data=replace(recipe.data, dataset=dataset.name, **splits)), recipe)
    return (
        f"Note: {total:,} images. keras-vit finetune is for {FEWEST} to {MOST:,}: it opens each of them first, looks "
        f"for no copies, and trains for an hour at most on a CPU. For so many: keras-vit train {MANY} "
        f"{' '.join(flags)}"
    )


def _few_images(folder: ImageFolder) -> Iterator[str]:
    data, evaluated = folder.data, folder.count(folder.data.test_split)
    images = sum(folder.count(split) for split in (data.train_split, data.validation_split, data.test_split) if split)
    if images < FEWEST:
        yield (
            f"The folder has {images} images. With fewer than {FEWEST}, the accuracy and the comparison of the "
            f"exported file with Keras, on {evaluated} of them, say little. Add images."
        )


def _with_splits(folder: Path, data: Data) -> tuple[ImageDataset, Data]:
    dataset = open_dataset(Data(dataset=f"folder:{folder}", group=data.group, converted=data.converted))
    by_name = {name.lower(): name for name in dataset.splits}
    train, test, validation = (
        next((by_name[name] for name in names if name in by_name), None) for names in (TRAINING, TEST, VALIDATION)
    )
    has_no_splits = train and not (folder / train).is_dir()
    if train and (test or validation or has_no_splits):
        curve = validation if test else None
        evaluated = test or validation or "test"
        return dataset, replace(
            data, dataset=dataset.name, train_split=train, validation_split=curve, test_split=evaluated
        )
    if not train and len(dataset.splits) > 1:
        raise ValueError(
            f"{folder} has folders in its folders {first_names(dataset.splits)}. Expected {folder}/<class>/<image>, or "
            f"the splits {folder}/train/<class>/<image> and {folder}/test/<class>/<image>."
        )
    inner = train or next(iter(dataset.splits))
    converted = data.converted and os.path.join(data.converted, inner)
    return _with_splits(folder / inner, replace(data, converted=converted))


def _examples(dataset, split) -> tuple[np.ndarray, np.ndarray]:
    """The paths of a split's images, and their labels."""
    names, labels = zip(*read_arrays(dataset, split, lambda name, _, label: (name, label)))
    return np.concatenate(names), np.concatenate(labels)


def _in_two_classes(files: np.ndarray, labels: np.ndarray) -> list[tuple[str, str]]:
    """Pairs of files with the same content and different labels."""
    groups = [sorted((file.decode(), label) for file, label in zip(files, labels.tolist()))]
    for key in (os.path.getsize, _end_of, _hash_of):  # most files differ in what is read first
        parts = defaultdict(list)
        for number, group in enumerate(groups):
            for file, label in group:
                parts[number, key(file)].append((file, label))
        groups = [part for part in parts.values() if any(label != part[0][1] for _, label in part)]
    return [(group[0][0], file) for group in groups for file, label in group if label != group[0][1]]


def _end_of(file) -> bytes:
    with open(file, "rb") as content:
        content.seek(max(0, os.path.getsize(file) - 512))
        return content.read()


def _hash_of(file) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()


def _look_at(files: np.ndarray, progress: Progress) -> Iterator[tuple[str, ImageFile | None]]:
    for file in map(bytes.decode, files):
        yield file, look_at(file)
        progress.add(1)


def choose_recipe(
    folder: ImageFolder,
    weights: str,
    model,
    output: Path,
    class_weight: Literal["balanced"] | None = None,
    resize_is_stated: bool = False,
    size: int | tuple[int, int] | None = None,
) -> Supervised:
    """The recipe for a folder; prints it, with the estimated time, as a command that repeats the training.

    `model` is loaded from `weights`, without a head; `output` is the folder of the run; `size` is that of the images,
    by default as of `image_size`. Where a central crop shows too little of the images, they are squashed unless the
    resize is stated.
    """
    check_trainable(model)
    for note in [*folder.notes, *(notes_on_range(folder.files) if model.preprocessing.pixel_range is None else ())]:
        print(f"Note: {note}")
    accelerator = any(device.device_type in ("GPU", "TPU") for device in tf.config.list_physical_devices())
    size = size or image_size(model.preprocessing, accelerator, getattr(model, "patch_size", (1, 1)))
    if model.image_size != as_size(size):
        model = model.resized(size, name=model.name)
    recipe = replace(
        SMALL,
        architecture=_architecture(model),
        weights=weights,
        data=folder.data,
        run=replace(SMALL.run, folder=str(output)),
        class_weight=class_weight,
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
    count, size = min(TIMED_IMAGES, dataset.splits[data.train_split]), model.image_size
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
    lines = [
        f"images    {images:,} to train on, {folder.count(data.test_split):,} in the test set; {len(names):,} classes: "
        f"{first_names(names)}",
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
    return [*lines, "\nThis command repeats the training:\n", train_command(recipe), ""]


def _numbers(values) -> str:
    return " ".join(f"{value:g}" for value in values)
