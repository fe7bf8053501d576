"""The perceptual hash against a cosine transform by hand, what it finds, and the search against a loop."""

import numpy as np
import pytest
from PIL import Image, ImageOps
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare.duplicates import KnownImages, fingerprint

CHANGES = {
    "JPEG 75": lambda image: opened(encoded(image, quality=75)),
    "half": lambda image: image.resize((image.width // 2, image.height // 2), Image.BICUBIC),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: image.point(lambda value: min(255, int(value * 1.15))),
    "cut": lambda image: image.crop((2, 2, image.width - 2, image.height - 2)),
}


def bits(hashes):
    return np.unpackbits(hashes.view("uint8"), axis=-1)


def differ(a, b):
    """Bits in which (2, W) hashes of `a` differ from the plain hash of `b`."""
    return (bits(fingerprint(a)) != bits(fingerprint(b))[0]).sum(-1)


def test_hash_is_the_cosine_transform_above_its_median():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32), dtype="uint8")
    cosines = np.cos(np.pi * np.outer(np.arange(16), 2 * np.arange(32) + 1) / 64)
    for row, image in enumerate((pixels, pixels[:, ::-1])):
        lowest = cosines @ image.astype(float) @ cosines.T
        expected = (lowest > np.median(lowest)).ravel()
        found = fingerprint(Image.fromarray(pixels))
        assert found.shape == (2, 4) and found.dtype == np.uint64
        np.testing.assert_array_equal(bits(found)[row], expected)


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_near_and_others_far(change):
    images = [scene(seed, (320, 240)) for seed in range(8)]
    for i, image in enumerate(images):
        plain, mirrored = differ(CHANGES[change](image), image)
        assert (mirrored if change == "mirrored" else plain) <= 60
        assert min(differ(CHANGES[change](image), images[i - 1])) > 70


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "I;16"])
def test_kinds_of_images(mode):
    image = scene(3)
    if mode == "I;16":
        changed = Image.fromarray(np.asarray(image.convert("L")).astype("uint16") * 257)
    else:
        changed = image.convert(mode)
    assert changed.mode == mode
    assert differ(changed, image)[0] <= 20


def test_large_jpeg_files_are_decoded_small():
    image = opened(encoded(scene(1, (800, 600)), quality=95))
    expected = fingerprint(scene(1, (800, 600)))
    assert (bits(fingerprint(image)) != bits(expected)).sum() <= 20
    assert max(image.size) < 400


def test_nearest_is_what_a_loop_finds():
    random = np.random.default_rng(0)
    hashes = random.integers(0, 2**63, (50, 4), "uint64")
    known = KnownImages([f"p{i}" for i in range(50)], hashes, threshold_bits=110)
    for query in random.integers(0, 2**63, (20, 2, 4), "uint64"):
        distances = (bits(query)[:, None] != bits(hashes)[None]).sum(-1)
        found = known.nearest(query)
        if distances.min() > 110:
            assert found is None
        else:
            row, place = np.unravel_index(distances.argmin(), distances.shape)
            assert found == (f"p{place}", distances.min(), bool(row))


def test_mirrored_negative_and_missing():
    images = [scene(seed) for seed in range(4)]
    known = KnownImages("abcd", [fingerprint(image)[0] for image in images])
    assert known.nearest(fingerprint(images[2])) == ("c", 0, False)
    assert known.nearest(fingerprint(ImageOps.mirror(images[1]))) == ("b", 0, True)
    assert known.nearest(fingerprint(scene(9))) is None
    opposite = KnownImages(["a"], ~fingerprint(images[0])[:1])  # 256 bits differ, which a byte would count as 0
    assert opposite.nearest(fingerprint(images[0])) is None
    assert KnownImages([], np.zeros((0, 4), "uint64")).nearest(fingerprint(images[0])) is None


def test_images_without_structure_are_copies_only_if_equal():
    flat = [Image.new("RGB", (40, 30), color) for color in ("red", "navy")]
    columns = np.random.default_rng(0).integers(0, 256, 32, dtype="uint8")
    stripes = Image.fromarray(np.tile(columns, (32, 1)))
    known = KnownImages(["red"], fingerprint(flat[0])[:1])
    assert known.nearest(fingerprint(flat[1]))[1] == 0
    assert 0 < differ(stripes, flat[0])[0] < 60
    assert known.nearest(fingerprint(stripes)) is None


def test_threshold_is_checked():
    with pytest.raises(ValueError, match="is 200 bits, but must be in"):
        KnownImages([], np.zeros((0, 4), "uint64"), 200)
