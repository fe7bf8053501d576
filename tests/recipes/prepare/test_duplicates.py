"""The perceptual hash against a cosine transform in NumPy, its recall, and the search against a loop."""

import io

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image, ImageOps
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare.outcomes import UNREADABLE, HashIndex, fingerprint
from keras_vit.recipes.prepare.shards import hash_test_sets

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
    hashes = fingerprint(Image.fromarray(pixels))
    assert hashes.shape == (2, 4) and hashes.dtype == np.uint64
    for row, image in zip(hashes, (pixels, pixels[:, ::-1])):
        lowest = cosines @ image.astype(float) @ cosines.T
        np.testing.assert_array_equal(bits(row), (lowest > np.median(lowest)).ravel())


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_within_the_threshold_and_others_are_not(change):
    images = [scene(seed, (320, 240)) for seed in range(8)]
    for i, image in enumerate(images):
        plain, mirrored = distances(CHANGES[change](image), image)
        assert (mirrored if change == "mirrored" else plain) <= 60
        assert min(distances(CHANGES[change](image), images[i - 1])) > 70


def test_nearest_matches_a_loop():
    random = np.random.default_rng(0)
    hashes = random.integers(0, 2**63, (50, 4), "uint64")
    index = HashIndex([f"p{i}" for i in range(50)], hashes, threshold_bits=110)
    for query in random.integers(0, 2**63, (20, 2, 4), "uint64"):
        expected = (bits(query)[:, None] != bits(hashes)[None]).sum(-1)
        mirrored, i = np.unravel_index(expected.argmin(), expected.shape)
        nearest = (f"p{i}", expected.min(), bool(mirrored)) if expected.min() <= 110 else None
        assert index.nearest(query) == nearest
    with pytest.raises(ValueError, match="Received: 200"):
        HashIndex([], np.zeros((0, 4), "uint64"), 200)


def test_mirrored_inverted_missing_and_flat_images():
    images = [scene(seed) for seed in range(4)]
    index = HashIndex("abcd", [fingerprint(image)[0] for image in images])
    assert index.nearest(fingerprint(images[2])) == ("c", 0, False)
    assert index.nearest(fingerprint(ImageOps.mirror(images[1]))) == ("b", 0, True)
    assert index.nearest(fingerprint(scene(9))) is None
    opposite = HashIndex(["a"], ~fingerprint(images[0])[:1])  # all 256 bits differ, which uint8 would count as 0
    assert opposite.nearest(fingerprint(images[0])) is None
    assert HashIndex([], np.zeros((0, 4), "uint64")).nearest(fingerprint(images[0])) is None
    # Images without structure are copies only if all bits agree.
    red, navy = (Image.new("RGB", (40, 30), color) for color in ("red", "navy"))
    stripes = Image.fromarray(np.tile(np.random.default_rng(0).integers(0, 256, 32, dtype="uint8"), (32, 1)))
    index = HashIndex(["red"], fingerprint(red)[:1])
    assert index.nearest(fingerprint(navy))[1] == 0
    assert 0 < distances(stripes, red)[0] < 60 and index.nearest(fingerprint(stripes)) is None


def test_indices_of_test_images_count_corrupt_ones(tmp_path):
    folder = tmp_path / "with@sign"
    contents = [encoded(scene(0), "PNG"), b"no image", encoded(scene(2), "PNG")]
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(encoding_format="png"), "label": tfds.features.ClassLabel(names=["cat"])}
    )
    examples = [(i, {"image": io.BytesIO(content), "label": 0}) for i, content in enumerate(contents)]
    store = tfds.dataset_builders.store_as_tfds_dataset
    store("scenes", "1.0.0", features, {"test": examples}, data_dir=folder, disable_shuffling=True)
    name = f"tfrecord:{folder}/scenes/1.0.0"
    for source in (name, f"{name}@test"):
        index, unreadable = hash_test_sets((source,), 60)
        assert index.names == [f"{name}@test 0", f"{name}@test 2"]
        assert unreadable == [(UNREADABLE, f"{name}@test 1", ("cannot be decoded",))]


def test_folders_and_datasets_are_hashed(source, data_dir):
    index, unreadable = hash_test_sets((f"folder:{source}", "digits@test[:5]"), 60, data_dir)
    assert [name for name in index.names if "digits" in name] == [f"digits@test[:5] {i}" for i in range(5)]
    assert len(index.names) == 16 + 5 and index.words.shape == (4, 21)
    assert [(outcome, name) for outcome, name, _ in unreadable] == [
        (UNREADABLE, f"{source}/train/dog/{name}") for name in ("cut.jpg", "notes.txt")
    ]
    with pytest.raises(ValueError, match="'holdout'"):
        hash_test_sets(("digits@holdout",), 60, data_dir)
