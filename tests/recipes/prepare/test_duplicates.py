"""The perceptual hash against a cosine transform in NumPy, its recall, and the search against a loop."""

import numpy as np
import pytest
from PIL import Image, ImageOps
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare.duplicates import HashIndex, fingerprint

CHANGES = {
    "JPEG 75": lambda image: opened(encoded(image, quality=75)),
    "half": lambda image: image.resize((image.width // 2, image.height // 2), Image.BICUBIC),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: image.point(lambda value: min(255, int(value * 1.15))),
    "cropped": lambda image: image.crop((2, 2, image.width - 2, image.height - 2)),
}


def bits(hashes):
    return np.unpackbits(hashes.view("uint8"), axis=-1)


def distances(a, b):
    """Different bits of the two hashes of `a` and the first hash of `b`: (2,)."""
    return (bits(fingerprint(a)) != bits(fingerprint(b))[0]).sum(-1)


def test_hash_is_the_cosine_transform_thresholded_at_its_median():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32), dtype="uint8")
    cosines = np.cos(np.pi * np.outer(np.arange(16), 2 * np.arange(32) + 1) / 64)
    for row, image in enumerate((pixels, pixels[:, ::-1])):
        lowest = cosines @ image.astype(float) @ cosines.T
        expected = (lowest > np.median(lowest)).ravel()
        hashes = fingerprint(Image.fromarray(pixels))
        assert hashes.shape == (2, 4) and hashes.dtype == np.uint64
        np.testing.assert_array_equal(bits(hashes)[row], expected)


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_within_the_threshold_and_others_are_not(change):
    images = [scene(seed, (320, 240)) for seed in range(8)]
    for i, image in enumerate(images):
        plain, mirrored = distances(CHANGES[change](image), image)
        assert (mirrored if change == "mirrored" else plain) <= 60
        assert min(distances(CHANGES[change](image), images[i - 1])) > 70


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "I;16"])
def test_hashes_of_all_modes(mode):
    image = scene(3)
    if mode == "I;16":
        changed = Image.fromarray(np.asarray(image.convert("L")).astype("uint16") * 257)
    else:
        changed = image.convert(mode)
    assert changed.mode == mode
    assert distances(changed, image)[0] <= 20


def test_large_jpeg_files_are_decoded_at_a_fraction_of_their_size():
    image = opened(encoded(scene(1, (800, 600)), quality=95))
    expected = fingerprint(scene(1, (800, 600)))
    assert (bits(fingerprint(image)) != bits(expected)).sum() <= 20
    assert max(image.size) < 400


def test_nearest_matches_a_loop():
    random = np.random.default_rng(0)
    hashes = random.integers(0, 2**63, (50, 4), "uint64")
    index = HashIndex([f"p{i}" for i in range(50)], hashes, threshold_bits=110)
    for query in random.integers(0, 2**63, (20, 2, 4), "uint64"):
        expected = (bits(query)[:, None] != bits(hashes)[None]).sum(-1)
        nearest = index.nearest(query)
        if expected.min() > 110:
            assert nearest is None
        else:
            mirrored, i = np.unravel_index(expected.argmin(), expected.shape)
            assert nearest == (f"p{i}", expected.min(), bool(mirrored))


def test_mirrored_inverted_and_missing_images():
    images = [scene(seed) for seed in range(4)]
    index = HashIndex("abcd", [fingerprint(image)[0] for image in images])
    assert index.nearest(fingerprint(images[2])) == ("c", 0, False)
    assert index.nearest(fingerprint(ImageOps.mirror(images[1]))) == ("b", 0, True)
    assert index.nearest(fingerprint(scene(9))) is None
    opposite = HashIndex(["a"], ~fingerprint(images[0])[:1])  # all 256 bits differ, which uint8 would count as 0
    assert opposite.nearest(fingerprint(images[0])) is None
    assert HashIndex([], np.zeros((0, 4), "uint64")).nearest(fingerprint(images[0])) is None


def test_images_without_structure_are_copies_only_if_all_bits_agree():
    flat = [Image.new("RGB", (40, 30), color) for color in ("red", "navy")]
    columns = np.random.default_rng(0).integers(0, 256, 32, dtype="uint8")
    stripes = Image.fromarray(np.tile(columns, (32, 1)))
    index = HashIndex(["red"], fingerprint(flat[0])[:1])
    assert index.nearest(fingerprint(flat[1]))[1] == 0
    assert 0 < distances(stripes, flat[0])[0] < 60
    assert index.nearest(fingerprint(stripes)) is None


def test_threshold_is_checked():
    with pytest.raises(ValueError, match=r"`threshold_bits` must be in \[0, 128\].* Received: 200"):
        HashIndex([], np.zeros((0, 4), "uint64"), 200)
