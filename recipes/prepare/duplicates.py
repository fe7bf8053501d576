"""Finding copies of test images: a perceptual hash of 256 bits and the number of bits in which two of them differ.

The hash is "pHash" (N. Krawetz, "Looks Like It", hackerfactor.com, 2011) with 16 x 16 coefficients instead of 8 x 8:
the image in gray and 32 x 32 pixels, its cosine transform, and for each of the lowest coefficients whether it is
above their median. A mirrored image has the same coefficients, those of odd horizontal frequency negated, so both
hashes cost one transform, and every search finds mirrored copies too.

What the threshold means was measured with benchmarks/duplicates.py, see docs/data.md: at 60 of 256 bits, all copies
that were re-encoded or made smaller are found and 99 % of those that lost 5 % of their sides, and of 1e9 pairs of
different photographs about one is taken for copies; the usual 64 bits would take thousands.

P images, W words of 64 bits a hash.
"""

from collections.abc import Iterable

import numpy as np
from PIL import Image
from scipy.fft import dctn

THRESHOLD_BITS = 60
# Hashes of photographs have about 128 bits set. Flat or symmetric images fix few coefficients: all of them would be
# near each other.
LEAST_BITS_SET = 96
PIXELS, FREQUENCIES = 32, 16
SIGNS_OF_MIRRORED = np.where(np.arange(FREQUENCIES) % 2, -1.0, 1.0)


def fingerprint(image: Image.Image) -> np.ndarray:
    """Hashes of an image and of its mirror image, (2, W) uint64.

    A JPEG file that has only been opened is decoded at a fraction of its size, which is twice as fast.

    Raises:
        OSError, ValueError, SyntaxError and others of Pillow's: The file is damaged.
        ValueError: Its pixels are floats, whose black and white nobody says.
    """
    if image.mode == "F":
        raise ValueError("the pixels are floats, of unknown range; save it with 8 or 16 bits")
    image.draft("L", (4 * PIXELS, 4 * PIXELS))
    if image.mode.startswith("I"):  # 16 bits: `convert` would clip at 255
        image = Image.fromarray(np.clip(np.asarray(image, "float64") / 257, 0, 255).astype("uint8"))
    gray = image.convert("L").resize((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    lowest = np.round(dctn(np.asarray(gray, "float64"))[:FREQUENCIES, :FREQUENCIES], 6)
    both = np.stack([lowest, lowest * SIGNS_OF_MIRRORED]).reshape(2, -1)  # (2, 256)
    bits = both > np.median(both, axis=-1, keepdims=True)
    return np.packbits(bits, axis=-1).view("uint64")  # (2, W)


def check_threshold(bits: int):
    """Raises ValueError for a number of different bits that tells no copies from others."""
    if not 0 <= bits <= 128:
        raise ValueError(
            f"The threshold is {bits} bits, but must be in [0, 128]: hashes have 256 bits, and those of any two "
            f"images differ in about 128. {THRESHOLD_BITS} is the measured choice."
        )


class KnownImages:
    """Images that others are compared with, by brute force: exact, and cheaper than decoding the image in question.

    Against 100,000 images a comparison takes about a millisecond, and a worker keeps 3 MB and the names.

    Args:
        names: P names, for the report.
        hashes: (P, W) uint64, of the images as they are (`fingerprint(...)[0]`).
        threshold_bits: Two images are copies if at most so many of 256 bits differ. Those with little structure
            (one color, symmetric, a few bits set) are copies only if none does.

    Raises:
        ValueError: `threshold_bits` is outside [0, 128].
    """

    def __init__(self, names: Iterable[str], hashes: np.ndarray, threshold_bits: int = THRESHOLD_BITS):
        check_threshold(threshold_bits)
        self.names = list(names)
        self.words = np.ascontiguousarray(np.transpose(hashes))  # (W, P): one word of all images at a time
        self.threshold_bits = threshold_bits

    def nearest(self, hashes: np.ndarray) -> tuple[str, int, bool] | None:
        """The image that an image is a copy of, with the distance in bits and whether it is mirrored.

        Args:
            hashes: (2, W) uint64, see `fingerprint`.

        Returns:
            The nearest one's name, or None if all are further than the threshold.
        """
        if not self.names:
            return None
        limit = self.threshold_bits if int(np.bitwise_count(hashes[0]).sum()) >= LEAST_BITS_SET else 0
        distances = np.stack([self._distances(words) for words in hashes])  # (2, P)
        mirrored, place = np.unravel_index(np.argmin(distances), distances.shape)
        if distances[mirrored, place] > limit:
            return None
        return self.names[place], int(distances[mirrored, place]), bool(mirrored)

    def _distances(self, words):
        total = np.zeros(len(self.names), "uint16")  # up to 256: too much for a byte
        for known, word in zip(self.words, words):
            total += np.bitwise_count(known ^ word)
        return total  # (P,)
