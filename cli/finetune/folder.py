"""The folder of `keras-vit finetune`: its splits, and what is wrong with its images."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from keras_vit.name_list import first_names
from keras_vit.recipes.data import ImageDataset, decoded_images, open_dataset, read_labels
from keras_vit.recipes.data.corrupt_images import mark_named
from keras_vit.recipes.recipe import Data

# Names of splits that people use; the first that a folder has is taken.
TRAINING, TEST, VALIDATION = ("train", "training"), ("test", "testing"), ("validation", "valid", "val", "eval", "dev")
FEWEST = 30  # images, as documented
MAX_UNREADABLE = 0.1  # fraction of the files
DECODED_BYTES = 64e6  # that are decoded to count them: a few seconds
NAMED = 10  # unreadable files that are named before the training


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images with its splits.

    Args:
        data: Fields of a recipe, with dataset and splits.
        dataset: The opened dataset.
        notes: What to know about the images, one sentence each.
        unreadable: Number of files of each split that are no images or, in a small folder, cannot be decoded.
    """

    data: Data
    dataset: ImageDataset
    notes: tuple[str, ...]
    unreadable: Counter[str]

    def count(self, split: str) -> int:
        """Number of images of a split; 0 if the folder does not have it."""
        return self.dataset.splits.get(split, 0) - self.unreadable[split]


def open_images(folder: Path, data: Data) -> ImageFolder:
    """Opens a folder: /folder/<class>/<image>, or with splits, /folder/<split>/<class>/<image>.

    Without images for an evaluation, a fifth of each class is held out for it, see `split_by_class`. Nothing on
    the disk is moved. All images are opened; those of a small folder are decoded, and named if that fails.

    Args:
        folder: Its classes may also be in a single folder in it, as in an unpacked archive.
        data: Other fields.

    Raises:
        ValueError: The folder is missing or laid out in another way; or it cannot be trained on, with all reasons.
    """
    dataset, data = _with_splits(folder, data)
    problems, notes = [], []
    names = dataset.class_names
    counts = Counter(names[label] for label in read_labels(dataset, data.train_split))
    if len(names) < 2:
        problems.append(
            f"{folder} has one class, {names[0]!r}. Expected a folder of images for each of several classes."
        )
    elif not dataset.splits.get(data.test_split):
        problems.append(f"Each class of {folder} has a single image, so that none is left to evaluate on. Add images.")
    elif few := [name for name in names if counts[name] < 2]:
        notes.append(f"At most one image to train on: {first_names(few)}. Add images of these classes.")
    unreadable = {split: list(_unreadable(dataset, split)) for split in dataset.splits}
    bad, total = [file for files in unreadable.values() for file in files], sum(dataset.splits.values())
    are_none = "is no image" if len(bad) == 1 else "are no images"
    if len(bad) > MAX_UNREADABLE * total:
        problems.append(f"{len(bad):,} of {total:,} files {are_none}. Remove them: {first_names(bad)}")
    elif bad:
        mark_named(dataset.name, bad[:NAMED])
        notes.append(f"{len(bad):,} of {total:,} files {are_none}; skipped: {first_names(bad, NAMED)}")
    if pairs := _in_two_classes(dataset):
        images_are = "image is" if len(pairs) == 1 else "images are"
        notes.append(f"{len(pairs):,} {images_are} in two classes: {first_names(f'{a} = {b}' for a, b in pairs)}")
    if problems:
        raise ValueError("\n".join(problems))
    counted = Counter({split: len(files) for split, files in unreadable.items()})
    if sum(os.path.getsize(file) for file in _files(dataset)) <= DECODED_BYTES:
        counted = Counter({split: _count_undecodable(dataset, split) for split in dataset.splits})
    images = ImageFolder(data, dataset, tuple(notes), counted)
    return replace(images, notes=(*notes, *_few_images(images)))


def _few_images(folder: ImageFolder) -> Iterator[str]:
    data, evaluated = folder.data, folder.count(folder.data.test_split)
    images = sum(folder.count(split) for split in (data.train_split, data.validation_split, data.test_split) if split)
    if images < FEWEST:
        yield (
            f"The folder has {images} images. With fewer than {FEWEST}, the accuracy and the comparison of the "
            f"exported file with Keras, on {evaluated} of them, say little. Add images."
        )


def _with_splits(folder: Path, data: Data) -> tuple[ImageDataset, Data]:
    dataset = open_dataset(Data(dataset=f"folder:{folder}"))
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
    return _with_splits(folder / (train or next(iter(dataset.splits))), data)


def _in_two_classes(dataset) -> list[tuple[str, str]]:
    """Pairs of files with the same content and different labels."""
    files = [
        (name.decode(), int(label))
        for split in dataset.splits
        for name, _, label in dataset.read(split).as_numpy_iterator()
    ]
    by_size = defaultdict(list)
    for file, label in sorted(files):
        by_size[Path(file).stat().st_size].append((file, label))
    pairs, first = [], dict[bytes, tuple[str, int]]()
    for file, label in (one for same in by_size.values() if len(same) > 1 for one in same):
        other, label_of_other = first.setdefault(hashlib.sha256(Path(file).read_bytes()).digest(), (file, label))
        if label != label_of_other:
            pairs.append((other, file))
    return pairs


def _files(dataset) -> Iterator[str]:
    for split in dataset.splits:
        yield from (name.decode() for name, _, _ in dataset.read(split).as_numpy_iterator())


def _count_undecodable(dataset, split) -> int:
    """Decodes all images of a split, and names those that cannot be decoded on standard error."""
    decoded = sum(len(images) for images, _ in decoded_images(dataset, split, batch_size=8, max_corrupt=1.0))
    return dataset.splits[split] - decoded


def _unreadable(dataset, split) -> Iterator[str]:
    """Yields the files that Pillow does not take for images."""
    for name, _, _ in dataset.read(split).as_numpy_iterator():
        try:
            Image.open(file := name.decode()).close()
        except Exception:  # Pillow's readers raise errors of many kinds for damaged files
            yield file
