"""What `keras-vit finetune` sees in the files: which are no images, their shapes and range."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from keras_vit.images.rgb import open_image, orientation

LONG = 0.75  # shorter side / longer side, that of 4:3: of longer images a central square is less
EXCHANGED = 5  # from this orientation on, images are stored on their side
DARK = 2**14  # a quarter of the range of 16 bits


class ImageFile(NamedTuple):
    """An image file.

    Attributes:
        aspect: Height / width of the upright image.
        brightest: The largest value of a gray image of 16 bits; None for other images.
    """

    aspect: float
    brightest: int | None


def look_at(file: str) -> ImageFile | None:
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


def typical_part(images: Iterable[ImageFile], size: tuple[int, int]) -> float:
    """Median part of the images that is in the largest central part of the shape (height, width)."""
    shape = size[0] / size[1]
    return median(min(image.aspect / shape, shape / image.aspect) for image in images)
