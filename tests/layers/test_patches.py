import re

import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_io

from keras_vit.layers import ExtractPatches, PatchEmbedding, resample_patch_embedding


def test_order_of_patches_and_values():
    images = np.arange(1 * 4 * 6 * 2).reshape(1, 4, 6, 2)
    patches = np.asarray(ExtractPatches((2, 3))(images))
    assert patches.shape == (1, 4, 12)
    for number, (row, column) in enumerate([(0, 0), (0, 3), (2, 0), (2, 3)]):
        np.testing.assert_array_equal(patches[0, number], images[0, row : row + 2, column : column + 3].ravel())


def test_initial_values():
    embedding = PatchEmbedding(256, 8)
    embedding.build((None, 16, 16, 3))
    kernel, bias = embedding.projection.get_weights()
    assert kernel.std() == pytest.approx((1 / (8 * 8 * 3)) ** 0.5, rel=0.02) and not bias.any()


@pytest.mark.parametrize("layer", [ExtractPatches(16), PatchEmbedding(8, 16)])
def test_patch_that_does_not_divide_the_image(layer):
    with pytest.raises(ValueError, match=r"\(96, 64\) or image_size=\(112, 64\)"):
        layer.build((None, 100, 64, 3))


def test_resampled_kernels_equal_big_vision():
    io = golden_io("big_vision_flexivit")
    names = [name for name in io.files if name.startswith("kernel_")]
    assert len(names) == 6
    for name in names:
        found = resample_patch_embedding(io["kernel"], tuple(map(int, re.findall(r"\d+", name))))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, io[name], atol=1e-6 * np.abs(io[name]).max(), err_msg=name)
    np.testing.assert_array_equal(resample_patch_embedding(io["kernel"], 8), io["kernel"])


@pytest.mark.parametrize("old,new", [((4, 4), (8, 8)), ((4, 4), (7, 5)), ((3, 4), (3, 9))])
def test_enlarged_patches_have_the_same_embeddings(old, new):
    random = np.random.default_rng(0)
    patches, kernel = random.standard_normal((6, *old, 3)), random.standard_normal((*old, 3, 5)).astype("float32")
    larger = tf.image.resize(patches, new)  # linear, half-pixel centers
    expected = np.einsum("nhwc,hwcd->nd", patches, kernel)
    found = np.einsum("nhwc,hwcd->nd", larger, resample_patch_embedding(kernel, new))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("shape,size,word", [((4, 4, 3), 8, "kernel"), ((4, 4, 3, 2), 0, "patch_size")])
def test_kernels_that_cannot_be_resampled(shape, size, word):
    with pytest.raises(ValueError, match=word):
        resample_patch_embedding(np.zeros(shape), size)
