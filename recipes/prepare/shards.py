"""`prepare`: writes a folder of images as TFRecord shards for TensorFlow Datasets, without copies of test images.

The work is one function of a file's name, `outcomes.examine`. TensorFlow Datasets runs it, shuffles the images by a
hash of their names and writes them: with Apache Beam if a runner is specified, on as many machines as it has; otherwise
in threads of this process, with a buffer on disk. Both produce the same order.
"""

import os
import re
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from etils import epath
from PIL import Image

from keras_vit.atomic_write import OLD, replace_folder, temporary_folder, temporary_name
from keras_vit.messages import first_names
from keras_vit.recipes.data.arrays import decode_examples
from keras_vit.recipes.data.datasets import open_dataset
from keras_vit.recipes.data.image_dataset import count_examples
from keras_vit.recipes.data.image_folder import walk_files
from keras_vit.recipes.prepare.builder import Images, write_reports, write_shards
from keras_vit.recipes.prepare.outcomes import (
    STORED,
    THRESHOLD_BITS,
    UNREADABLE,
    Counts,
    HashIndex,
    check_threshold,
    count_skipped,
    fingerprint,
    hash_file,
    map_in_threads,
    write_skipped,
)
from keras_vit.recipes.prepare.source import open_source
from keras_vit.recipes.recipe import Data

# Always written: a folder that has one was written by `prepare` and may be replaced.
MARKER = "unreadable-*.csv"
WRITTEN = re.compile(
    r"(dataset_info|features)[.]json|label[.]labels[.]txt|images-.+[.]tfrecord-\d+-of-\d+|(unreadable|duplicates)-.+[.]csv"
)


def prepare(
    source: str,
    output: str,
    train_split: str = "train",
    flat: bool = False,
    against: tuple[str, ...] = (),
    threshold_bits: int = THRESHOLD_BITS,
    data_dir: str | None = None,
    dry_run: bool = False,
    shard_megabytes: float = 256,
    beam_runner: str | None = None,
    beam_options: tuple[str, ...] = (),
    overwrite: bool = False,
) -> dict[str, Counts]:
    """Writes a folder of images as TFRecords, with reports of the skipped ones; arguments as for `keras-vit prepare`.

    Returns:
        Numbers of stored and skipped images of each split.

    Raises:
        ValueError: An argument is out of range, the source has another layout, a test set is unknown, the output
            exists (checked again at the end: then the result stays beside it), or no image of a split remains (a dry
            run only reports that).
        ImportError: A runner is specified and Apache Beam is not installed.
    """
    _check_arguments(threshold_bits, shard_megabytes, beam_runner, beam_options)
    folder = open_source(_absolute(source), train_split if flat else None)
    if against and train_split not in folder.classes:
        raise ValueError(
            f"There is no split {train_split!r} in {source} to compare with {', '.join(against)}. Set --train-split "
            f"to one of {', '.join(folder.classes)}."
        )
    target = epath.Path(_absolute(output))
    check = partial(_check_replaceable, target, overwrite, dry_run)
    check()
    options = None
    if beam_runner:
        from keras_vit.recipes.prepare.beam import pipeline_options, write_reports_with_beam

        options = pipeline_options(beam_options)
    test_images, unreadable = {}, []
    if against:
        test_images[train_split], unreadable = hash_test_sets(against, threshold_bits, data_dir)
    with _replace_when_complete(target, check) as new:
        if not dry_run:
            write_shards(Images(folder, test_images, new, bool(beam_runner)), shard_megabytes, beam_runner, options)
        elif beam_runner and options is not None:
            write_reports_with_beam(folder, test_images, new, beam_runner, options)
        else:
            write_reports(folder, test_images, new)
        if unreadable:
            write_skipped(unreadable, "against", new)
    counts = {split: count_skipped(split, target) for split in folder.classes}
    if dry_run:
        return counts
    splits = tfds.builder_from_directory(os.fspath(target)).info.splits
    return {
        split: replace(skipped, stored=splits[split].num_examples, shards=splits[split].num_shards)
        for split, skipped in counts.items()
    }


def _check_arguments(threshold_bits, shard_megabytes, beam_runner, beam_options):
    check_threshold(threshold_bits)
    if shard_megabytes <= 0:
        raise ValueError(
            f"--shard-megabytes must be above 0; 100 to 500 suit most storage. Received: {shard_megabytes}"
        )
    if beam_options and not beam_runner:
        raise ValueError(
            f"--beam-options requires --beam-runner: set it, or omit the options to use threads of this process. "
            f"Received: {' '.join(beam_options)}"
        )


def _absolute(path):
    return path.rstrip("/") if "://" in path else os.path.realpath(os.path.expanduser(path))  # a link remains


def _check_replaceable(folder, overwrite, dry_run):
    if os.path.ismount(folder):
        raise ValueError(f"{folder} is a mount point and cannot be replaced. Choose a folder in it as the output.")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ValueError(f"{folder} already exists. Choose another output, or set --overwrite.")
    if not any(folder.glob(MARKER)):
        raise ValueError(f"{folder} was not written by keras-vit prepare and is not replaced. Choose another output.")
    if foreign := sorted(file.name for file in folder.iterdir() if not WRITTEN.fullmatch(file.name)):
        raise ValueError(
            f"{folder} has files that keras-vit prepare did not write, which --overwrite would delete: "
            f"{first_names(foreign)}. Move them, or choose another output."
        )
    if dry_run and any(file.suffix != ".csv" for file in folder.iterdir()):
        raise ValueError(
            f"{folder} contains more than lists, and a dry run writes only lists: --overwrite would delete the rest. "
            "Choose another output, or omit --dry-run."
        )


@contextmanager
def _replace_when_complete(target, check):
    """Yields the path of a new folder next to the target, which replaces it if the block ends without an error.

    The block may take hours, in which others may write to the target: `check` raises ValueError if it may no longer be
    replaced. The new folder then stays beside it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(target) as temporary:
        new, kept = temporary / "new", target.parent / f"{target.name}.complete-{uuid.uuid4().hex[:8]}"
        yield new
        replace_folder(new, target, temporary / OLD, kept, check)


@contextmanager
def _temporary_folder(target):
    """`temporary_folder`, also on gs://, where there are no locks, and a killed process leaves it."""
    if "://" not in os.fspath(target):
        with temporary_folder(Path(target)) as folder:
            yield epath.Path(folder)
        return
    folder = target.parent / f"{temporary_name(target)}{uuid.uuid4().hex[:8]}"
    try:
        yield folder
    finally:
        if (folder / OLD).exists() and not target.exists():
            (folder / OLD).rename(target)
        if folder.exists():
            folder.rmtree()


def hash_test_sets(sources: tuple[str, ...], threshold_bits: int, data_dir: str | None = None):
    """Hashes test sets; at about 300 images per second and core, 100,000 take minutes.

    Args:
        sources: "folder:/path", all images in it at any depth; or a dataset as in `Data` with its split after @:
            "cifar10@test", "imagenet2012@validation", "tfrecord:/path@test". Without @ the split is "test".
    """
    names: list[str] = []
    hashes, unreadable = [], []
    for source in sources:
        before = len(names)
        outcomes = _hash_folder(source) if source.startswith("folder:") else _hash_dataset(source, data_dir)
        for outcome, name, result in outcomes:
            if outcome == STORED:
                names.append(name)
                hashes.append(result)
            else:
                unreadable.append((outcome, name, result))
        if len(names) == before:
            raise ValueError(f"There are no images in {source} to compare with.")
    return HashIndex(names, np.array(hashes), threshold_bits), unreadable


def _hash_folder(source):
    """Yields what `hash_file` returns, of every image at any depth."""
    path = os.path.expanduser(source.removeprefix("folder:"))
    for outcome, name, result in map_in_threads(hash_file, walk_files(path), path):
        yield outcome, f"{path}/{name}", result


def _hash_dataset(source, data_dir):
    """Yields the same of a dataset's split; names contain the images' indices."""
    dataset_name, at, split = source.rpartition("@")
    if not at or "/" in split:  # an @ of the path
        dataset_name, split = source, ""
    split = split or "test"
    dataset = open_dataset(Data(dataset=dataset_name, data_dir=data_dir))
    count_examples(dataset, split)  # an unknown split raises an error that lists the known ones
    images = decode_examples(dataset, dataset.read(split)).as_numpy_iterator()
    for index, (_, image, _) in enumerate(images):
        name = f"{dataset_name}@{split} {index}"
        if image.size:
            yield STORED, name, fingerprint(Image.fromarray(image))[0]
        else:
            yield UNREADABLE, name, ("cannot be decoded",)
