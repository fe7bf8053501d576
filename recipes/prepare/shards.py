"""Folders of images become TFRecord shards that TensorFlow Datasets reads, without copies of test images.

The work is one function of a file's name, `image_files.examine`. TensorFlow Datasets runs it, shuffles the images
by a hash of their names and writes them: with Apache Beam where a runner is named, on as many machines as it has, else
in threads of this process, where images on their way to a shard wait in files. Both give the same order.
"""

import os
import uuid
from contextlib import contextmanager
from dataclasses import replace

import tensorflow_datasets as tfds
from etils import epath

from keras_vit.recipes.prepare.builder import Images, report_here, write
from keras_vit.recipes.prepare.duplicates import THRESHOLD_BITS, check_threshold
from keras_vit.recipes.prepare.image_tree import open_tree
from keras_vit.recipes.prepare.skipped import Counts, count_left_out, write_left_out
from keras_vit.recipes.prepare.test_set_hashes import known_images

# Always written: its presence says that a folder was made here and may be replaced.
MARK = "unreadable-*.csv"


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
    """Writes a folder of images as TFRecords, and reports of what was left out; arguments as of `keras-vit prepare`.

    Returns:
        What became of each split's images.

    Raises:
        ValueError: An argument is out of range, the source is not laid out as expected, a test set is unknown, the
            output exists, or no image is left (after a dry run the lists say so).
        ImportError: A runner is named and Apache Beam is missing.
    """
    _check_arguments(threshold_bits, shard_megabytes, beam_runner, beam_options)
    tree = open_tree(_absolute(source), train_split if flat else None)
    if against and train_split not in tree.classes:
        raise ValueError(
            f"There is no split {train_split!r} in {source} to compare with {', '.join(against)}, only "
            f"{', '.join(tree.classes)}. Name one with --train-split."
        )
    target = epath.Path(_absolute(output))
    _check_replaceable(target, overwrite)
    if beam_runner:
        from keras_vit.recipes.prepare.beam import pipeline_options, report_with_beam

        beam_options = pipeline_options(beam_options)
    known, unreadable = {}, []
    if against:
        known[train_split], unreadable = known_images(against, threshold_bits, data_dir)
    with _fresh(target) as folder:
        if not dry_run:
            write(Images(tree, known, folder, bool(beam_runner)), shard_megabytes, beam_runner, beam_options)
        elif beam_runner:
            report_with_beam(tree, known, folder, beam_runner, beam_options)
        else:
            report_here(tree, known, folder)
        if unreadable:
            write_left_out(unreadable, "against", folder)
    counts = {split: count_left_out(split, target) for split in tree.classes}
    if dry_run:
        return counts
    splits = tfds.builder_from_directory(os.fspath(target)).info.splits
    return {
        name: replace(found, kept=splits[name].num_examples, shards=splits[name].num_shards)
        for name, found in counts.items()
    }


def _check_arguments(threshold_bits, shard_megabytes, beam_runner, beam_options):
    check_threshold(threshold_bits)
    if shard_megabytes <= 0:
        raise ValueError(f"A shard cannot have {shard_megabytes} megabytes; 100 to 500 suit most storage.")
    if beam_options and not beam_runner:
        raise ValueError(
            f"Options of Beam ({' '.join(beam_options)}) without a runner: name one with --beam-runner, or leave them "
            "out to work in this process."
        )


def _absolute(path):
    return path.rstrip("/") if "://" in path else os.path.abspath(os.path.expanduser(path))


def _check_replaceable(folder, overwrite):
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ValueError(f"{folder} exists already. Choose another output, or --overwrite it.")
    if not any(folder.glob(MARK)):
        raise ValueError(f"{folder} holds something else than prepared images and is left alone. Choose another one.")


@contextmanager
def _fresh(target):
    """Gives the name of a folder beside the target, which takes its place when the block ends well."""
    aside, old = (target.parent / f"{target.name}.{word}-{uuid.uuid4().hex[:8]}" for word in ("incomplete", "old"))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield aside
        if target.exists():
            target.rename(old)
        aside.rename(target)
    finally:
        if old.exists():
            if not target.exists():
                old.rename(target)
            else:
                old.rmtree()
        if aside.exists():
            aside.rmtree()
