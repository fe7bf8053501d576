"""What `keras-vit finetune` sees in the files: which are no images, their shapes and range."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from keras_vit.images.rgb import open_image

LONG = 0.75  # shorter side / longer side, that of 4:3: of longer images a central square is less
DARK = 2**14  # a quarter of the range of 16 bits


class ImageFile(NamedTuple):
    """An image file.

    Attributes:
        aspect: Shorter side / longer side.
        brightest: The largest value of a gray image of 16 bits; None for other images.
    """

    aspect: float
    brightest: int | None


def look_at(file: str) -> ImageFile | None:
    """What a file is; None if it is no image for Pillow. Only images of 16 bits are decoded."""
    try:
        with open_image(file) as image:
            deep = image.mode.startswith("I")
            return ImageFile(min(image.size) / max(image.size), int(image.getextrema()[1]) if deep else None)
    except Exception:  # Pillow's readers raise errors of many kinds for damaged files
        return None


def notes_on_range(images: Iterable[ImageFile]) -> Iterator[str]:
    """Yields a sentence if images of 16 bits are so dark that their upper 8 bits, which are used, say little."""
    values = [image.brightest for image in images if image.brightest is not None]
    if values and max(values) < DARK:
        bits = max(values).bit_length()
        yield (
            f"{len(values):,} images have 16 bits, but no value above {max(values):,}. Their upper 8 bits are used: "
            f"{max(values) // 256 + 1} gray levels of 256 are left, all dark. Multiply their pixels by "
            f"{2 ** (16 - bits)}"
        )


def typical_aspect(images: Iterable[ImageFile]) -> float:
    """Median of shorter side / longer side."""
    return median(image.aspect for image in images)
