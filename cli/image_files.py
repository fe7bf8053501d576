"""Images of a folder, read for a model. n images, H W pixels."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_vit.recipes.data.image_folder import ENDINGS


class Images(NamedTuple):
    """Images as a model takes and sees them.

    Attributes:
        names: n paths, relative to the folder.
        images: (n, H, W, 3) float32, prepared by the model.
        pixels: (n, H, W, 3) uint8, the same for people.
    """

    names: list[str]
    images: np.ndarray
    pixels: np.ndarray

    def chosen(self, places) -> "Images":
        """Those at the places, a list of integers."""
        return Images([self.names[i] for i in places], self.images[places], self.pixels[places])


def list_images(folder: Path) -> list[Path]:
    """Paths of the images in a folder, at any depth, sorted.

    Raises:
        ValueError: There is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder.absolute()}. Give --images a folder with images, at any depth.")
    files = (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and not file.name.startswith("."))
    found = sorted(file for file in files if file.is_file())
    if not found:
        raise ValueError(
            f"There are no images in {folder.absolute()}. Images are files that end in {', '.join(ENDINGS)}."
        )
    return found


def read_images(model, folder: Path, files) -> Images:
    """Reads files of `list_images` and prepares them with `model.preprocess`.

    Raises:
        ValueError: A file cannot be read as an image.
    """
    images = np.concatenate([np.asarray(model.preprocess(_decoded(file))) for file in files])  # (n, H, W, 3)
    preprocessing = model.preprocessing
    pixels = 255 * (images * np.float32(preprocessing.std) + np.float32(preprocessing.mean))
    names = [file.relative_to(folder).as_posix() for file in files]
    return Images(names, images, np.clip(np.rint(pixels), 0, 255).astype("uint8"))


def spread(count: int, wanted: int) -> list[int]:
    """`wanted` of the numbers below `count`, evenly from the first to the last; the last alone if one is wanted."""
    wanted = min(wanted, count)
    return [count - 1] if wanted == 1 else np.linspace(0, count - 1, wanted).round().astype(int).tolist()


def _decoded(file) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"))  # (any, any, 3)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{file} cannot be read as an image: {error}. Mend the file or take it out of the folder."
        ) from error
