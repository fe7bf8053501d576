"""`keras-vit prepare`: writes a folder of images as TFRecord shards, without copies of test images."""

from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from keras_vit_cli.words import OUTPUT, DataDir, Overwrite, TrainSplit


@dataclass(frozen=True)
class Prepare:
    """Write images as TFRecords, without copies of test images.

    --output is a folder, local or on gs://; tfrecord:OUTPUT is then a dataset for training. JPEG and PNG files are
    stored unchanged, other formats as PNG. Images that cannot be read and copies of test images are skipped and listed
    in OUTPUT: unreadable-<split>.csv, duplicates-<split>.csv. OUTPUT appears when it is complete.

    Args:
        source: Folder with <split>/<class>/<image>, local or on gs://.
        flat: The source has <class>/<image>, which are all images of --train-split.
        against: Test sets: "folder:/path" (all images in it, at any depth), or a dataset and its split,
            "cifar10@test". Training images that are copies of theirs, mirrored or not, are skipped.
        threshold_bits: Largest number of different bits, of 256, in the hashes of two images that count as copies;
            docs/results.md has measurements.
        dry_run: Write the lists only; TFRecords are never replaced.
        shard_megabytes: Approximate size of a file.
        beam_runner: Apache Beam runner, such as DirectRunner, DataflowRunner or FlinkRunner, which shuffles images in
            memory; by default threads of this process do the work and shuffle on disk.
        beam_options: Options of the runner, without dashes: project=p region=r temp_location=gs://bucket/tmp.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    output: Annotated[str, OUTPUT]
    train_split: TrainSplit = "train"
    flat: bool = False
    against: tuple[str, ...] = ()
    threshold_bits: int = 60
    data_dir: DataDir = None
    dry_run: bool = False
    shard_megabytes: float = 256
    beam_runner: str | None = None
    beam_options: tuple[str, ...] = ()
    overwrite: Overwrite = False

    def run(self):
        """Prepares the images, and prints how many were stored and skipped."""
        from keras_vit.recipes.prepare import prepare

        for split, counts in prepare(**asdict(self)).items():
            stored = f"{counts.stored:,} images in {counts.shards:,} files; " if counts.stored is not None else ""
            skipped = f"{counts.unreadable:,} unreadable, {counts.duplicates:,} copies of test images"
            print(f"{split}: {stored}skipped: {skipped}")
        print(f"Skipped images are listed in {self.output}/*.csv")
        if not self.dry_run:
            print(f"Train on the others with --data.dataset tfrecord:{self.output}")
