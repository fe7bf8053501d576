"""Reads an image or the images of a folder for a model. n images, H W pixels."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from keras_vit.images.rgb import NO_HEIC, open_image, orientation, reduce_to_8_bits, unreadable
from keras_vit.messages import first_names
from keras_vit.recipes.data.folder_layout import EXTENSIONS, HEIC, walk

EXCHANGED = 5  # from this orientation on, images are stored on their side
DARK = 2**14  # a quarter of the range of 16 bits
LOOKED_AT = 50  # images of which a note on all is made


class ImageBatch(NamedTuple):
    """Images before and after preprocessing.

    Attributes:
        names: n paths, relative to the folder; of a single file its name.
        inputs: (n, H, W, 3) float32, the model's input.
        pixels: (n, H, W, 3) uint8, the same images for display.
    """

    names: list[str]
    inputs: np.ndarray
    pixels: np.ndarray

    def select(self, indices: list[int]) -> "ImageBatch":
        """The images at these indices."""
        return ImageBatch([self.names[i] for i in indices], self.inputs[indices], self.pixels[indices])


class ImageFile(NamedTuple):
    """An image file.

    Attributes:
        aspect: Height / width of the upright image.
        brightest: The largest value of a gray image of 16 bits; None for other images.
    """

    aspect: float
    brightest: int | None


def look_at(file: str | Path) -> ImageFile | None:
    """What a file is; None if it is no image for Pillow. Only images of 16 bits are decoded."""
    try:
        with open_image(file) as image:
            deep = image.mode.startswith("I")
            width, height = image.size[::-1] if orientation(image) >= EXCHANGED else image.size
            return ImageFile(height / width, int(image.getextrema()[1]) if deep else None)
    except Exception:  # Pillow's readers raise errors of many kinds for damaged files
        return None


def notes_on_range(images: Iterable[ImageFile]) -> Iterator[str]:
    """Yields a sentence if images of 16 bits are so dark that their upper 8 bits, which are used, say little."""
    values = [image.brightest for image in images if image.brightest is not None]
    if values and max(values) < DARK:
        yield (
            f"{len(values):,} images have 16 bits, but no value above {max(values):,}. Their upper 8 bits are used: "
            f"{max(values) // 256 + 1} gray levels of 256 are left, all dark. Add --pixel-range LOW HIGH, such as 0 "
            f"{2 ** max(values).bit_length() - 1}"
        )


def print_note_on_range(preprocessing, files: Iterable):
    """Prints what `notes_on_range` says of the first files, unless a range is stated."""
    if preprocessing.pixel_range is None:
        for note in notes_on_range(filter(None, map(look_at, islice(files, LOOKED_AT)))):
            print(f"Note: {note}", file=sys.stderr)


def list_images(folder: Path, option: str = "--images") -> list[Path]:
    """Sorted paths of the images in a folder and its subfolders, without hidden files; or of a single image file.

    Prints the names of other files. Raises ValueError, with the command's option, if there are none.
    """
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"{option} {folder.absolute()} does not exist. Expected a folder of images, or an image.")
    files = sorted(file for path, names in walk(str(folder)) for name in names if (file := Path(path, name)).is_file())
    extensions = {*EXTENSIONS, *HEIC, *pillow_extensions()}
    images = [file for file in files if file.suffix.lower() in extensions]
    if not images:
        raise ValueError(f"No images in {folder.absolute()}. Supported extensions: {', '.join(EXTENSIONS)}.")
    if others := [file for file in files if file.suffix.lower() not in extensions]:
        _note(others, f"their names do not end in {', '.join(EXTENSIONS)} or as other images")
    return images


def pillow_extensions() -> set[str]:
    """Of the images that Pillow reads, such as ".tiff"; also those of `pillow_heif` after it was registered."""
    return {extension for extension, kind in Image.registered_extensions().items() if kind in Image.OPEN}


def without_damaged(files: Sequence[Path]) -> list[Path]:
    """The files that can be read; prints the names of the others. Raises ValueError if none can be read."""
    reasons = {file: reason for file in files if (reason := unreadable_reason(file))}
    damaged = list(reasons)
    heic = next((f" ({NO_HEIC})" for reason in reasons.values() if NO_HEIC in reason), "")
    if len(damaged) == len(files):
        raise ValueError(
            f"None of the {len(files):,} files can be read as an image{heic}: {first_names(files)}"
            if len(files) > 1
            else reasons[files[0]]
        )
    if damaged:
        _note(damaged, f"they cannot be read as images{heic}")
    return [file for file in files if file not in damaged]


def _note(files, reason):
    print(f"Note: {len(files):,} skipped, since {reason}: {first_names(files)}", file=sys.stderr)


def unreadable_reason(file: Path) -> str:
    """Why Pillow does not read all of a file, with its name; "" if it does."""
    try:
        with open_image(file) as image:
            image.draft("RGB", (1, 1))  # of a JPEG file, an eighth of the pixels
            image.load()
            reduce_to_8_bits(image)  # refuses floats
    except Exception as error:  # Pillow's readers raise errors of many kinds for damaged files
        return str(unreadable(file, error))
    return ""


def read_images(preprocessing, folder: Path, files: Sequence[Path]) -> ImageBatch:
    """Reads files from `list_images` of the folder and preprocesses them as a model's `preprocessing` specifies."""
    inputs = np.concatenate([np.asarray(preprocessing(file)) for file in files])  # (n, H, W, 3)
    pixels = 255 * (inputs * np.float32(preprocessing.std) + np.float32(preprocessing.mean))
    names = [file.name if file == folder else file.relative_to(folder).as_posix() for file in files]
    return ImageBatch(names, inputs, np.clip(np.rint(pixels), 0, 255).astype("uint8"))


def evenly_spaced(total: int, count: int) -> list[int]:
    """At most `count` indices below `total`, evenly spaced from the first to the last; for one, only the last."""
    count = min(count, total)
    return [total - 1] if count == 1 else np.linspace(0, total - 1, count).round().astype(int).tolist()


def count_images(names: Sequence[str]) -> str:
    """Such as "1 image" or "1,000 images"."""
    return f"{len(names):,} image{'s' * (len(names) != 1)}"
