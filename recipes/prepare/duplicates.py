"""Finds copies of test images by a perceptual hash of 256 bits. P images, W words of 64 bits per hash.

The hash is "pHash" (N. Krawetz, "Looks Like It", hackerfactor.com, 2011) with 16 x 16 coefficients instead of 8 x 8:
the gray image at 32 x 32 pixels, its cosine transform, and for each of the lowest coefficients whether it is above
their median. A mirrored image has the same coefficients, with those of odd horizontal frequency negated: both hashes
cost one transform, and every search finds mirrored copies too.

docs/results.md has the measurements of the threshold: at 60 of 256 bits, all re-encoded or
downsized copies are found and 99 % of those cropped by 5 %, and about one of 1e9 pairs of different photographs is a
false positive; with the usual hash of 64 bits it would be thousands.
"""

from collections.abc import Iterable

import numpy as np
from PIL import Image, ImageOps
from scipy.fft import dctn

from keras_vit.rgb import reduce_to_8_bits

THRESHOLD_BITS = 60
ORIENTATION = 0x0112  # EXIF tag: how to turn the stored image upright
TURNED = range(2, 9)
# Hashes of photographs have about 128 bits set. Flat or symmetric images determine few coefficients: their hashes are
# all near each other.
MIN_BITS_SET = 96
PIXELS, FREQUENCIES = 32, 16
SIGNS_OF_MIRRORED = np.where(np.arange(FREQUENCIES) % 2, -1.0, 1.0)


def turned_upright(image: Image.Image) -> Image.Image:
    """The image turned by its EXIF orientation; the same object if it is upright or its EXIF data is damaged."""
    try:
        if image.format != "TIFF" and image.getexif().get(ORIENTATION) in TURNED:  # Pillow turns TIFF itself
            return ImageOps.exif_transpose(image)
    except Exception:  # nearly anything; the image itself may be intact
        pass
    return image


def fingerprint(image: Image.Image) -> np.ndarray:
    """Hashes an image, turned upright, and its mirror image: (2, W) uint64.

    A JPEG file that is opened but not loaded is decoded at a fraction of its size, which is twice as fast.

    Raises:
        OSError, ValueError, SyntaxError and other errors of Pillow: The file is damaged.
        ValueError: The pixels are floats, whose range is unknown.
    """
    image.draft("L", (4 * PIXELS, 4 * PIXELS))
    gray = reduce_to_8_bits(turned_upright(image)).convert("L").resize((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    lowest = np.round(dctn(np.asarray(gray, "float64"))[:FREQUENCIES, :FREQUENCIES], 6)
    both = np.stack([lowest, lowest * SIGNS_OF_MIRRORED]).reshape(2, -1)  # (2, 256)
    bits = both > np.median(both, axis=-1, keepdims=True)
    return np.packbits(bits, axis=-1).view("uint64")  # (2, W)


def check_threshold(bits: int):
    """Raises ValueError for a number of different bits that does not separate copies from other images."""
    if not 0 <= bits <= 128:
        raise ValueError(
            "`threshold_bits` must be in [0, 128]: hashes have 256 bits, and those of any two images differ in about "
            f"128. The measured default is {THRESHOLD_BITS}. Received: {bits}"
        )


class HashIndex:
    """Hashes of images, searched by brute force: exact, and cheaper than decoding the query image.

    With 100,000 images a search takes about a millisecond, and the index 3 MB plus the names.

    Args:
        names: P names, for the report.
        hashes: (P, W) uint64, of the images themselves (`fingerprint(...)[0]`).
        threshold_bits: Largest number of different bits, of 256, for two images to be copies. Images with little
            structure (one color, symmetric, few bits set) are copies only if no bit differs.
    """

    def __init__(self, names: Iterable[str], hashes: np.ndarray, threshold_bits: int = THRESHOLD_BITS):
        check_threshold(threshold_bits)
        self.names = list(names)
        self.words = np.ascontiguousarray(np.transpose(hashes))  # (W, P): one word of all images at a time
        self.threshold_bits = threshold_bits

    def nearest(self, hashes: np.ndarray) -> tuple[str, int, bool] | None:
        """Searches for the image that a query image is a copy of.

        Returns:
            (name, different bits, whether the copy is mirrored) of the nearest image, or None if none is within the
            threshold.
        """
        if not self.names:
            return None
        limit = self.threshold_bits if int(np.bitwise_count(hashes[0]).sum()) >= MIN_BITS_SET else 0
        distances = np.stack([self._distances(words) for words in hashes])  # (2, P)
        mirrored, index = np.unravel_index(np.argmin(distances), distances.shape)
        if distances[mirrored, index] > limit:
            return None
        return self.names[index], int(distances[mirrored, index]), bool(mirrored)

    def _distances(self, words):
        total = np.zeros(len(self.names), "uint16")  # up to 256: too large for uint8
        for stored, word in zip(self.words, words):
            total += np.bitwise_count(stored ^ word)
        return total  # (P,)
