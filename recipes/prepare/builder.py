"""The TensorFlow Datasets builder that writes the images of `keras-vit prepare` as TFRecord shards.

The written folder is complete: it can be read without this code.
"""

import io
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass

import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.utils import shard_utils

from keras_vit.messages import error_summary
from keras_vit.progress import shows_bars
from keras_vit.recipes.data.image_folder import list_files
from keras_vit.recipes.prepare.outcomes import COLUMNS, STORED, HashIndex, examine, map_in_threads, write_skipped
from keras_vit.recipes.prepare.source import SourceFolder


class Images(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Images of a folder, with the name of each file within the split's folder and its class."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def __init__(self, source: SourceFolder, test_images: dict[str, HashIndex], folder: epath.Path, use_beam: bool):
        self._source, self._test_images, self._folder, self._use_beam = source, test_images, folder, use_beam
        super().__init__(data_dir=os.fspath(folder.parent))

    def _build_data_dir(self, given_data_dir):
        # The folder itself and not images/1.0.0 in it: the user chose its name.
        return given_data_dir, os.fspath(self._folder)

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "file_name": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=self._source.class_names()),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in self._source.classes}

    def _generate_examples(self, split):
        arguments = (self._source, split, self._test_images.get(split), self.data_path)
        if self._use_beam:
            from keras_vit.recipes.prepare.beam import StoredImages

            return StoredImages(*arguments)
        return stored_images(*arguments)


def stored_images(source: SourceFolder, split: str, test_images, folder: epath.Path) -> Iterator[tuple[str, dict]]:
    """Yields name and example of every image to store, then writes the reports of the others."""
    skipped, num_stored = [], 0
    for outcome, name, result in _examine_split(source, split, test_images):
        if outcome == STORED:
            num_stored += 1
            yield name, result
        else:
            skipped.append((outcome, name, result))
    write_skipped(skipped, split, folder)
    if not num_stored:
        first = ""
        if skipped:
            outcome, name, details = skipped[0]
            about = ", ".join(f"{column} {value}" for column, value in zip(COLUMNS[outcome][1:], details))
            first = f", the first {name} ({about.replace('_', ' ')})"
        raise ValueError(f"No image of {source.split_path(split)} remains. Skipped: {len(skipped):,}{first}.")


def write_reports(source: SourceFolder, test_images: dict[str, HashIndex], folder: epath.Path):
    """Writes the reports of every split, and nothing else."""
    for split in source.classes:
        outcomes = _examine_split(source, split, test_images.get(split))
        write_skipped([outcome for outcome in outcomes if outcome[0] != STORED], split, folder)


def _examine_split(source, split, test_images):
    """Yields what `examine` returns, of every file of a split."""
    path = source.split_path(split)
    names = (name for class_name in source.classes[split] for name in list_files(class_name, path))
    return map_in_threads(examine, names, path, test_images)


def write_shards(builder: Images, shard_megabytes: float, beam_runner: str | None = None, beam_options=None):
    """Lets TensorFlow Datasets write the builder's folder, which appears when it is complete."""
    config = SizedShards(
        beam_runner=beam_runner,
        beam_options=beam_options or None,
        max_shard_size=max(1, int(shard_megabytes * 1e6)),
        try_download_gcs=False,
    )
    tfds.display_progress_bar(shows_bars())
    # Otherwise an empty folder for downloads would remain, and messages about downloads would be printed.
    with tempfile.TemporaryDirectory() as downloads, redirect_stdout(io.StringIO()):
        try:
            builder.download_and_prepare(download_dir=downloads, download_config=config)
        except RuntimeError as error:  # TensorFlow Datasets' class for most errors
            cause: BaseException | None = error
            while cause and not isinstance(cause, OSError | tf.errors.OpError):
                cause = cause.__cause__ or cause.__context__
            if cause is None:
                raise
            raise OSError(
                f"{builder.data_path} cannot be written: {error_summary(cause)}. Check the free space and the "
                "permissions; nothing was written."
            ) from error


class ShardSize(shard_utils.ShardConfig):
    """Number of shards from their size: TensorFlow Datasets 4.9 ignores `max_shard_size`."""

    def get_number_shards(self, total_size, num_examples, uses_precise_sharding=True):
        return max(1, min(num_examples, math.ceil(total_size / self.max_shard_size)))


@dataclass(eq=False)
class SizedShards(tfds.download.DownloadConfig):
    """TensorFlow Datasets' configuration, with `ShardSize`."""

    def get_shard_config(self):
        return ShardSize(max_shard_size=self.max_shard_size)
