"""Images that look like photographs to a perceptual hash: coarse shapes with finer ones on them."""

import io

import numpy as np
from PIL import Image


def scene(seed, size=(80, 64)):
    """A random RGB Pillow image; size is (width, height)."""
    random = np.random.default_rng(seed)
    shapes = [random.integers(0, 256, (n, n, 3), dtype="uint8") for n in (4, 12, 32)]
    layers = [np.asarray(Image.fromarray(shape).resize(size, Image.BICUBIC), float) for shape in shapes]
    return Image.fromarray(np.average(layers, axis=0, weights=(3, 2, 1)).astype("uint8"))


def encoded(image, kind="JPEG", **options):
    """The bytes of the image's file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def opened(content):
    """The image in the bytes of a file."""
    return Image.open(io.BytesIO(content))
