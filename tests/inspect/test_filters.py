import numpy as np
import pytest

from keras_vit.inspect import filter_components


def test_they_explain_most_of_the_filters(toy):
    model = toy(width=96)
    kernel = np.random.default_rng(0).standard_normal((4, 4, 3, 96))
    stripes = np.zeros((4, 4, 3))
    stripes[::2] = 1.0
    stripes[1::2] = -1.5
    kernel += 9 * stripes[..., None] * np.random.default_rng(1).standard_normal(96)
    model.patch_embedding.projection.kernel.assign(kernel)
    found = filter_components(model, 10)
    assert found.shape == (10, 4, 4, 3)
    assert abs(np.sum(found[0] * stripes)) / np.linalg.norm(stripes) > 0.99
    flat = found.reshape(10, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(10), atol=1e-10)
    filters = kernel.reshape(48, 96).astype("float32")
    variances = np.linalg.eigvalsh(np.cov(filters))[::-1]
    np.testing.assert_allclose(np.var(filters.T @ flat.T, axis=0, ddof=1), variances[:10], rtol=1e-4)
    assert all(one.flat[np.abs(one).argmax()] > 0 for one in found)


def test_too_many_components(toy):
    with pytest.raises(ValueError, match="between 1 and 12. Received: 28"):
        filter_components(toy())


def test_hybrids_raise(toy):
    model = toy(image_size=64, patch_size=16, resnet_stages=(1, 1, 1))
    with pytest.raises(ValueError, match="is a hybrid"):
        filter_components(model, 3)
