"""`keras-vit prepare`: folders of images to TFRecord shards, without copies of test images."""

from dataclasses import asdict, dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Prepare:
    """Write folders of images as TFRecords for "tfrecord:OUTPUT"; leave copies of test images out.

    JPEG and PNG files are kept as they are, others become PNG. Images that cannot be read are left out. Both kinds
    are listed in OUTPUT: unreadable-<split>.csv, duplicates-<split>.csv. OUTPUT appears when it is complete.

    Args:
        source: Folder with <split>/<class>/<image>, local or on gs://.
        output: Folder to write, local or on gs://.
        train_split: The split that is compared with `against`, and the name of the only one with `flat`.
        flat: The source has <class>/<image>.
        against: Test sets: "folder:/path" (all images below it), or a data set and its split, "cifar10@test". A
            training image that is a copy of one of theirs, or a mirrored copy, is left out.
        threshold_bits: Two images are copies if at most so many of the 256 bits of their hashes differ; docs/data.md
            says what each number finds.
        data_dir: Where the data sets of `against` are kept; by default TensorFlow Datasets' own place.
        dry_run: Write the lists only.
        shard_megabytes: About the size of a file.
        beam_runner: An Apache Beam runner, such as DirectRunner, DataflowRunner or FlinkRunner, which then does the
            work and shuffles the images in its memory; by default threads of this process do, and shuffle on disk.
        beam_options: For the runner, without dashes, such as project=p region=r temp_location=gs://bucket/tmp.
        overwrite: Replace an older output when the new one is complete.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    output: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
    train_split: str = "train"
    flat: bool = False
    against: tuple[str, ...] = ()
    threshold_bits: int = 60
    data_dir: str | None = None
    dry_run: bool = False
    shard_megabytes: float = 256
    beam_runner: str | None = None
    beam_options: tuple[str, ...] = ()
    overwrite: bool = False

    def run(self):
        """Prepares, and prints what became of the images."""
        from keras_vit.recipes.prepare import prepare

        for split, counts in prepare(**asdict(self)).items():
            kept = f"{counts.kept:,} images in {counts.shards:,} files, " if counts.kept is not None else ""
            left_out = f"{counts.unreadable:,} unreadable, {counts.duplicates:,} copies of test images"
            print(f"{split}: {kept}left out: {left_out}")
        print(f"Lists of what is left out: {self.output}/*.csv")
        if not self.dry_run:
            print(f"To train on them: --data.dataset tfrecord:{self.output}")
