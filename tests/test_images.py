import numpy as np
import pytest
import tensorflow as tf

from keras_vit.images import as_size, denormalize, normalize, patch_grid

PIXELS = np.arange(256, dtype="uint8").reshape(1, 16, 16, 1)


@pytest.mark.parametrize(
    "run", [lambda op, x: op(x), lambda op, x: next(iter(tf.data.Dataset.from_tensors(x).map(op)))]
)
def test_normalize_and_denormalize(run):
    values = np.asarray(run(normalize, PIXELS))
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, (PIXELS.astype("float32") - 127.5) / 127.5, atol=1e-6)
    assert values.min() == -1 and values.max() == 1
    np.testing.assert_array_equal(run(denormalize, values), PIXELS)


def test_denormalize_clips():
    np.testing.assert_array_equal(denormalize(np.array([-2.0, -1.0, 0.0, 1.0, 3.0])), [0, 0, 128, 255, 255])


def test_sizes():
    assert as_size(224) == (224, 224) and as_size([48, 80]) == (48, 80)
    assert as_size(np.int64(224)) == (224, 224) and as_size((np.int32(48), 80)) == (48, 80)
    assert {type(side) for side in as_size((np.int32(48), 80))} == {int}
    assert patch_grid((48, 80), 16) == (3, 5) and patch_grid(28, (14, 7)) == (2, 4)


@pytest.mark.parametrize(
    "size", [0, -1, 1.5, "224", None, (1, 2, 3), (16, 0), (16.0, 16), True, (16, True), np.float32(16)]
)
def test_invalid_sizes(size):
    with pytest.raises(ValueError, match="`image_size` must be a positive integer"):
        as_size(size)


def test_image_smaller_than_a_patch():
    with pytest.raises(ValueError, match=r"patches of \(16, 16\). Use image_size=16, or another patch_size"):
        patch_grid(8, 16)
