"""The data set that TensorFlow Datasets writes from a folder of images, and reads again from the result alone."""

import io
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.utils import shard_utils

from keras_vit.recipes.data.folders import files
from keras_vit.recipes.prepare.duplicates import KnownImages
from keras_vit.recipes.prepare.image_files import KEPT, examine, in_threads
from keras_vit.recipes.prepare.image_tree import ImageTree
from keras_vit.recipes.prepare.skipped import write_left_out


class Images(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Images of a folder: the file of each, its name below the split's folder, and its class."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def __init__(self, tree: ImageTree, known: dict[str, KnownImages], folder: epath.Path, with_beam: bool):
        self._tree, self._known, self._folder, self._with_beam = tree, known, folder, with_beam
        super().__init__(data_dir=os.fspath(folder.parent))

    def _build_data_dir(self, given_data_dir):
        # The folder itself and not images/1.0.0 below it: the folder's name is the user's.
        return given_data_dir, os.fspath(self._folder)

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "file_name": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=self._tree.class_names()),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in self._tree.classes}

    def _generate_examples(self, split):
        arguments = (self._tree, split, self._known.get(split), self.data_path)
        if self._with_beam:
            from keras_vit.recipes.prepare.beam import KeptImages

            return KeptImages(*arguments)
        return kept_here(*arguments)


def kept_here(tree: ImageTree, split: str, known, folder: epath.Path) -> Iterator[tuple[str, dict]]:
    """Yields name and example of every image that is kept, then writes the reports of the others."""
    left_out, kept = [], 0
    for outcome, name, result in _examined(tree, split, known):
        if outcome == KEPT:
            kept += 1
            yield name, result
        else:
            left_out.append((outcome, name, result))
    write_left_out(left_out, split, folder)
    if not kept:
        first = "".join(f", first {name} ({', '.join(map(str, result))})" for _, name, result in left_out[:1])
        raise ValueError(f"No image of {tree.split_path(split)} is left. Left out: {len(left_out):,}{first}.")


def report_here(tree: ImageTree, known: dict[str, KnownImages], folder: epath.Path):
    """Writes the reports of every split, and nothing else."""
    for split in tree.classes:
        found = _examined(tree, split, known.get(split))
        write_left_out([one for one in found if one[0] != KEPT], split, folder)


def _examined(tree, split, known):
    """What `examine` returns, of every file of a split."""
    path = tree.split_path(split)
    names = (name for folder_name in tree.classes[split] for name in files(folder_name, path))
    return in_threads(examine, names, path, known)


def write(builder: Images, shard_megabytes: float, beam_runner: str | None = None, beam_options=None):
    """Lets TensorFlow Datasets write the builder's folder; it appears when it is complete."""
    config = SizedShards(
        beam_runner=beam_runner,
        beam_options=beam_options or None,
        max_shard_size=max(1, int(shard_megabytes * 1e6)),
        try_download_gcs=False,
    )
    # Else an empty folder for downloads would stay behind, and the user would read of downloads.
    with tempfile.TemporaryDirectory() as downloads, redirect_stdout(io.StringIO()):
        builder.download_and_prepare(download_dir=downloads, download_config=config)


class ShardSize(shard_utils.ShardConfig):
    """The number of files from their size: TensorFlow Datasets 4.9 ignores the sizes that it is given."""

    def get_number_shards(self, total_size, num_examples, uses_precise_sharding=True):
        return max(1, min(num_examples, math.ceil(total_size / self.max_shard_size)))


@dataclass(eq=False)
class SizedShards(tfds.download.DownloadConfig):
    """Of TensorFlow Datasets, with `ShardSize`."""

    def get_shard_config(self):
        return ShardSize(max_shard_size=self.max_shard_size)
