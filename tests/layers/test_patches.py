import keras
import numpy as np
import pytest

from keras_vit.layers import ExtractPatches, PatchEmbedding


def test_order_of_patches_and_values():
    images = np.arange(1 * 4 * 6 * 2).reshape(1, 4, 6, 2)
    patches = np.asarray(ExtractPatches((2, 3))(images))
    assert patches.shape == (1, 4, 12)
    for number, (row, column) in enumerate([(0, 0), (0, 3), (2, 0), (2, 3)]):
        np.testing.assert_array_equal(patches[0, number], images[0, row : row + 2, column : column + 3].ravel())


@pytest.mark.parametrize("size,patch", [((16, 16), 4), ((8, 24), 4), ((12, 10), (6, 5))])
def test_dense_on_patches_equals_the_convolution(size, patch):
    images = np.random.default_rng(0).uniform(-1, 1, (2, *size, 3)).astype("float32")
    embedding = PatchEmbedding(7, patch)
    expected = embedding(images)
    dense = keras.layers.Dense(7)
    patches = ExtractPatches(patch)(images)
    dense.build(patches.shape)
    kernel, bias = embedding.projection.get_weights()
    dense.set_weights([kernel.reshape(-1, 7), bias + 0.5])
    np.testing.assert_allclose(dense(patches), np.asarray(expected) + 0.5, atol=1e-5)


def test_initial_values():
    embedding = PatchEmbedding(256, 8)
    embedding.build((None, 16, 16, 3))
    kernel, bias = embedding.projection.get_weights()
    assert kernel.std() == pytest.approx((1 / (8 * 8 * 3)) ** 0.5, rel=0.02)
    assert not bias.any()


@pytest.mark.parametrize("layer", [ExtractPatches(16), PatchEmbedding(8, 16)])
def test_patch_that_does_not_divide_the_image(layer):
    with pytest.raises(ValueError, match=r"\(100, 64\).*\(96, 64\) or image_size=\(112, 64\)"):
        layer.build((None, 100, 64, 3))
