"""Reads the images of a folder for a model. n images, H W pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_vit.recipes.data.image_folder import EXTENSIONS


class ImageBatch(NamedTuple):
    """Images before and after preprocessing.

    Attributes:
        names: n paths, relative to the folder.
        inputs: (n, H, W, 3) float32, the model's input.
        pixels: (n, H, W, 3) uint8, the same images for display.
    """

    names: list[str]
    inputs: np.ndarray
    pixels: np.ndarray

    def select(self, indices: list[int]) -> "ImageBatch":
        """The images at these indices."""
        return ImageBatch([self.names[i] for i in indices], self.inputs[indices], self.pixels[indices])


def list_images(folder: Path, option: str = "--images") -> list[Path]:
    """Sorted paths of the images in a folder and its subfolders, without hidden files.

    Args:
        folder: The folder.
        option: The command's option for it, for the error message.

    Raises:
        ValueError: The folder does not exist or contains no images.
    """
    if not folder.is_dir():
        raise ValueError(f"{option} {folder.absolute()} does not exist. Expected a folder of images.")
    files = (file for file in folder.rglob("*") if file.suffix.lower() in EXTENSIONS and not file.name.startswith("."))
    found = sorted(file for file in files if file.is_file())
    if not found:
        raise ValueError(f"No images in {folder.absolute()}. Supported extensions: {', '.join(EXTENSIONS)}.")
    return found


def read_images(preprocessing, folder: Path, files: Sequence[Path]) -> ImageBatch:
    """Reads files from `list_images` and preprocesses them as a model's `preprocessing` specifies.

    Raises:
        ValueError: A file cannot be read as an image.
    """
    inputs = np.concatenate([np.asarray(preprocessing(file)) for file in files])  # (n, H, W, 3)
    pixels = 255 * (inputs * np.float32(preprocessing.std) + np.float32(preprocessing.mean))
    names = [file.relative_to(folder).as_posix() for file in files]
    return ImageBatch(names, inputs, np.clip(np.rint(pixels), 0, 255).astype("uint8"))


def evenly_spaced(total: int, count: int) -> list[int]:
    """At most `count` indices below `total`, evenly spaced from the first to the last; for one, only the last."""
    count = min(count, total)
    return [total - 1] if count == 1 else np.linspace(0, total - 1, count).round().astype(int).tolist()
