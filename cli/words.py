"""The words of the command line: in all commands, one name for one meaning, with one form and one default.

Commands annotate their fields with these types. The options of `train` are the fields of its recipe.
"""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

_DATASET = arg(
    metavar="DATASET",
    help='"folder:/path" with /path/<class>/<image> or /path/<split>/<class>/<image>; a name of TensorFlow Datasets, '
    'such as "cifar10"; "digits"; "csv:/path", "tfrecord:/path" or "hf:owner/name", see docs/data.md.',
)
MODEL = arg(
    metavar="MODEL",
    help='File of weights, folder of a run, or name: "runs/photos", "B_16.npz", "hf:owner/name"; see docs/weights.md.',
)
Model = Annotated[str, Positional, MODEL]
START = arg(
    metavar="MODEL",
    help="Where the training starts: file of weights, folder of a run, or name, see docs/weights.md.",
)
IMAGES = arg(metavar="IMAGES", help="Image files; of a folder all images, subfolders included.")
Recipe = Annotated[
    str,
    Positional,
    arg(metavar="NAME", help="Name of a recipe, a file recipe.json, or the folder of a previous run."),
]
Dataset = Annotated[str, _DATASET]
OptionalDataset = Annotated[str | None, _DATASET]
Split = Annotated[
    str,
    arg(
        metavar="SPLIT",
        help='The images to evaluate on, in the notation of TensorFlow Datasets, such as "test" or "validation[:10%]".',
    ),
]
TrainSplit = Annotated[str, arg(metavar="SPLIT", help='The images to train on, such as "train" or "train[:10%]".')]
Group = Annotated[
    str | None,
    arg(
        metavar="REGEX|CSV",
        help="Keep images together that belong together, such as those of a patient, when a folder is split: a regular "
        "expression on their paths, such as 'patient(\\d+)'; or a CSV file with the columns file,group.",
    ),
]
DataDir = Annotated[
    str | None, arg(metavar="FOLDER", help="Folder of prepared datasets. Default: that of TensorFlow Datasets.")
]
BatchSize = Annotated[int, arg(metavar="N", help="Number of images at a time.")]
MaxCorrupt = Annotated[
    float,
    arg(
        metavar="FRACTION",
        help="Largest allowed fraction of images that cannot be decoded. They are named and do not count.",
    ),
]


def corrupt_note(max_corrupt: float) -> str:
    """What --max-corrupt in a printed command does."""
    skipped = f"skips images that cannot be decoded, up to {max_corrupt:.0%} of them, as the training did"
    return f"--max-corrupt {max_corrupt:g} {skipped}."


Json = Annotated[bool, arg(help="Print JSON in place of text, and notes to standard error.")]
Overwrite = Annotated[bool, arg(help="Replace what --output has of before, when the new one is complete.")]
OUTPUT = arg(metavar="PATH", help="The file or folder to write.")
Output = Annotated[Path, OUTPUT]
OptionalOutput = Annotated[Path | None, OUTPUT]

# The groups of a help page.
GROUPS = {
    "Model": ("model", "reference", "weights"),
    "Images": ("dataset", "split", "train_split", "data_dir", "batch_size", "max_corrupt"),
    "Preparation of images, where it is not as the weights state": (
        "image_size",
        "preprocessing",
        "mean",
        "std",
        "resize",
        "crop_fraction",
        "interpolation",
        "pixel_range",
    ),
    "Results": ("output", "json", "overwrite"),
}
# Words of one meaning, here or in other programs. An unknown one is answered by the one that the command has.
SYNONYMS = (
    ("model", "weights", "checkpoint", "pretrained"),
    ("output", "run.folder", "folder", "output-dir", "out"),
    ("dataset", "data", "images", "files"),
    ("split", "data.test-split", "test-split"),
    ("image-size", "img-size", "input-size"),
    ("optimizer.learning-rate", "lr"),
    ("optimizer.weight-decay", "wd"),
    ("optimizer.name", "opt"),
)
