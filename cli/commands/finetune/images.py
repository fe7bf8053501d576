"""The folder of images of `keras-vit finetune`: its splits, copies and folds, and what is wrong with its files."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from keras_vit.messages import first_names
from keras_vit.progress import Progress, show_progress
from keras_vit.recipes.configs.finetune import RECIPES
from keras_vit.recipes.data import ImageDataset, open_dataset
from keras_vit.recipes.data.arrays import read_arrays
from keras_vit.recipes.data.corrupt_images import mark_named
from keras_vit.recipes.data.groups import ImageTable, groups_of
from keras_vit.recipes.data.image_folder import class_of, open_folder, split_by_hash
from keras_vit.recipes.recipe import Data
from keras_vit_cli.commands.finetune.copies import in_two_classes, unite_copies
from keras_vit_cli.commands.finetune.earlier_run import keep_trained, trained_images, unknown_images
from keras_vit_cli.commands.finetune.folds import assign_folds, notes_on_folds, others
from keras_vit_cli.copies import Hashes, describe_copies, find_copies, hash_files
from keras_vit_cli.image_files import ImageFile, look_at
from keras_vit_cli.recipe_options import recipe_flags

# Names of splits that people use; the first that a folder has is taken.
TRAINING, TEST, VALIDATION = ("train", "training"), ("test", "testing"), ("validation", "valid", "val", "eval", "dev")
FEWEST, MOST = 30, 5_000  # images, as documented
MANY = "finetune-cifar100"  # the recipe for more
MAX_UNREADABLE = 0.1  # fraction of the files
NAMED = 10  # unreadable files that are named before the training
LONG = 0.75  # shorter side / longer side, that of 4:3: of longer images a central square is less


def typical_part(images: Iterable[ImageFile], size: tuple[int, int]) -> float:
    """Median part of the images that is in the largest central part of the shape (height, width)."""
    shape = size[0] / size[1]
    return median(min(image.aspect / shape, shape / image.aspect) for image in images)


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images with its splits.

    Args:
        data: Fields of a recipe, with dataset and splits.
        dataset: The opened dataset.
        notes: What to know about the images, one sentence each.
        unreadable: Number of files of each split that are no images.
        copies: (test file, training file) of copies, see `find_copies`.
        table: Groups of the images, if copies had to be united to keep them on one side of the split; and folds.
        files: The images.
    """

    data: Data
    dataset: ImageDataset
    notes: tuple[str, ...]
    unreadable: Counter[str]
    copies: tuple[tuple[str, str], ...] = ()
    table: ImageTable | None = None
    files: tuple[ImageFile, ...] = ()

    def count(self, split: str) -> int:
        """Number of images of a split, or of several, joined by +; 0 if the folder does not have it."""
        return sum(self.dataset.splits.get(part, 0) - self.unreadable[part] for part in split.split("+"))

    def with_notes(self, *notes: str) -> "ImageFolder":
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))


def open_images(folder: Path, data: Data, folds: int | None = None, earlier: Path | None = None) -> ImageFolder:
    """Opens a folder: /folder/<class>/<image>, or with splits, /folder/<split>/<class>/<image>.

    Its classes may also be in a single folder in it, as in an unpacked archive. Without a test set, about a
    fifth becomes one, see `split_by_hash`, or each image is in one of several folds. Nothing on the disk is moved. All
    files are opened, not decoded, and those that are no images named. A ValueError lists all reasons why it cannot be
    trained on. `earlier` is the run that is continued: what it was trained on is not tested on.
    """
    dataset, data = _with_splits(folder, data)
    total = sum(dataset.splits.values())
    show_progress(f"Reading {total:,} images")
    if total > MOST:
        print(_too_many(total, dataset, data), flush=True)
    problems, notes = [], []
    names = dataset.class_names
    examples = {split: _examples(dataset, split) for split, count in dataset.splits.items() if count}
    counts = np.bincount(examples[data.train_split][1], minlength=len(names))
    if len(names) < 2:
        problems.append(
            f"{folder} has one class, {names[0]!r}. Expected a folder of images for each of several classes."
        )
    elif not dataset.splits.get(data.test_split or ""):
        problems.append(
            f"Each class of {folder} has a single image or group, so that none is left to evaluate on. Add images."
        )
    elif few := [name for name, count in zip(names, counts, strict=True) if count < 2]:
        notes.append(f"At most one image to train on: {first_names(few)}. Add images of these classes.")
    if folds and _has_splits(data):
        problems.append(
            f"{folder} has the splits {first_names(dataset.splits)}. --folds makes splits of its own: give a folder "
            f"<class>/<image>, such as {_path(data)}/{data.train_split}, or omit --folds."
        )
    progress = Progress("Reading images", total, "images")
    files = {split: dict(_look_at(names, progress)) for split, (names, _) in examples.items()}
    progress.end()
    bad = [file for of_split in files.values() for file, image in of_split.items() if not image]
    are_none = "is no image" if len(bad) == 1 else "are no images"
    if len(bad) > MAX_UNREADABLE * total:
        problems.append(f"{len(bad):,} of {total:,} files {are_none}. Remove them: {first_names(bad)}")
    elif bad:
        mark_named(dataset.name, bad[:NAMED])
        notes.append(f"{len(bad):,} of {total:,} files {are_none}; skipped: {first_names(bad, NAMED)}")
    if pairs := in_two_classes(*(np.concatenate(arrays) for arrays in zip(*examples.values()))):
        images_are = "image is" if len(pairs) == 1 else "images are"
        notes.append(f"{len(pairs):,} {images_are} in two classes: {first_names(f'{a} = {b}' for a, b in pairs)}")
    if problems:
        raise ValueError("\n".join(problems))
    seen = [image for of_split in files.values() for image in of_split.values() if image]
    images = ImageFolder(data, dataset, tuple(notes), Counter(), files=tuple(seen))
    images = _with_groups_and_copies(images, set(bad), folds, earlier)
    return images.with_notes(*_few_images(images))


def _has_splits(data: Data) -> bool:
    """Whether the folder has splits, which are not made here."""
    return (Path(_path(data)) / data.train_split).is_dir()


def _path(data: Data) -> str:
    return data.dataset.removeprefix("folder:").rstrip("/")


def _with_groups_and_copies(images: ImageFolder, bad: set[str], folds: int | None, earlier: Path | None) -> ImageFolder:
    """Keeps copies on one side of a split that is made here, and notes those that are on both."""
    path = _path(images.data)
    files = sorted(image_files(images.dataset, "+".join(images.dataset.splits)))
    hashes = hash_files([file for file in files if file not in bad] if len(files) <= MOST else [])
    names = [file[len(path) + 1 :] for file in files]
    trained: dict[str, str] = {}
    try:
        trained = trained_images(earlier, path, names) if earlier else {}
    except (ValueError, OSError) as error:
        images = images.with_notes(f"{unknown_images(earlier)} {error}")
    if not _has_splits(images.data):
        images = _split(images, names, hashes, folds, trained, earlier)
    unreadable = Counter(
        {split: len(bad.intersection(image_files(images.dataset, split))) for split in images.dataset.splits}
    )
    images = replace(images, unreadable=unreadable)
    return _with_copies(images, hashes, {f"{path}/{file}": name for file, name in trained.items()}, earlier)


def _split(images: ImageFolder, names: list[str], hashes: Hashes, folds: int | None, trained, earlier) -> ImageFolder:
    """Makes a split, or folds, in which groups and copies stay together and what was trained on is not tested on."""
    data, path = images.data, _path(images.data)
    named = [(class_of(file), file) for file in names]
    groups, splits = groups_of(path, data.group, named), {}
    united = unite_copies(hashes, path, named, groups)
    if united:
        beside = len(named) - len(set(united.values()))
        images = images.with_notes(
            f"{beside:,} images stay beside their copies, on one side of the split (table in the run's folder)"
        )
    together = united or groups
    if folds and trained:
        raise ValueError(
            f"{earlier} was trained on {len(trained):,} of the {len(named):,} images, so that no fold would test it on "
            "others. Omit --folds, or start from the weights that it started from."
        )
    if folds:
        splits = assign_folds(named, together, folds)
        images = images.with_notes(*notes_on_folds(named, together, splits))
    elif trained:
        splits = keep_trained(split_by_hash(named, together), together, trained)
    if united or splits:
        table = ImageTable(together, splits)
        images = replace(images, dataset=open_folder(path, images.dataset.name, table, data.converted), table=table)
    if folds:
        return replace(images, data=replace(data, train_split="+".join(images.dataset.splits), test_split=None))
    if not images.dataset.splits.get("test"):
        raise ValueError(f"{earlier} was trained on all images of {path}, so that none is left to test on. Add images.")
    return images


def _with_copies(images: ImageFolder, hashes: Hashes, trained: dict[str, str], earlier: Path | None) -> ImageFolder:
    """Notes copies of training images in the test images, for each fold in those of the others.

    `trained` are images that an earlier run was trained on, with their names there.
    """
    data, known, copies = images.data, [], []
    tested = [data.test_split] if data.test_split else [*images.dataset.splits]
    for split in tested:
        training, test = (image_files(images.dataset, side) for side in (others(data.train_split, split), split))
        known += [(file, trained[file]) for file in test if file in trained]
        sides = training, [file for file in test if file not in trained]
        copies += find_copies(*({file: hashes[file] for file in side if file in hashes} for side in sides))
    count = images.count("+".join(tested))
    if known:
        images = images.with_notes(
            f"{earlier} was trained on {len(known):,} of {count:,} test images: the accuracy is too high. Test on "
            f"others. {first_names(f'{test} = {train}' for test, train in known)}"
        )
    if copies:
        images = images.with_notes(
            f"{describe_copies(copies, count)}. Remove the copies, or keep images that belong together on one side: "
            "--group, see keras-vit finetune --help"
        )
    return replace(images, copies=(*known, *copies))


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
    data = folder.data
    images = sum(folder.count(split) for split in (data.train_split, data.validation_split, data.test_split) if split)
    evaluated = folder.count(data.test_split or data.train_split)
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


def image_files(dataset: ImageDataset, split: str) -> list[str]:
    """The images of a split."""
    return [file.decode() for file in _examples(dataset, split)[0]]


def _look_at(files: np.ndarray, progress: Progress) -> Iterator[tuple[str, ImageFile | None]]:
    for file in map(bytes.decode, files):
        yield file, look_at(file)
        progress.add(1)
