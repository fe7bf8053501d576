import numpy as np
import pytest

from keras_vit.inspect import layer_features, layer_similarity, linear_cka

RANDOM = np.random.default_rng(0)


def test_cka_ignores_rotation_and_scale():
    x = RANDOM.standard_normal((20, 6))
    rotation, _ = np.linalg.qr(RANDOM.standard_normal((6, 6)))
    assert abs(linear_cka(x, 3 * x @ rotation + 5) - 1) < 1e-12


def test_cka_equals_the_other_formula_of_the_paper():
    x, y = RANDOM.standard_normal((30, 4)), RANDOM.standard_normal((30, 7))
    x, y = x - x.mean(0), y - y.mean(0)
    expected = np.linalg.norm(y.T @ x) ** 2 / np.linalg.norm(x.T @ x) / np.linalg.norm(y.T @ y)
    assert abs(linear_cka(x + 1, y) - expected) < 1e-12 and expected < 0.5


def test_cka_of_constant_features_is_zero():
    assert linear_cka(np.ones((5, 3)), RANDOM.standard_normal((5, 3))) == 0


def test_different_numbers_of_images_raise():
    with pytest.raises(ValueError, match=r"Expected shapes.*\(4, 3\), \(5, 3\)"):
        linear_cka(np.ones((4, 3)), np.ones((5, 3)))


@pytest.mark.parametrize("changes", [{}, {"pooling": "gap"}, {"position_placement": "every_layer"}])
def test_last_layer_is_the_input_of_the_final_normalization(trained_toy, images, changes):
    model = trained_toy(**changes)
    features = layer_features(model, images, batch_size=2)
    assert [one.shape for one in features] == [(3, 12)] * 2
    model.encoder.norm = None
    np.testing.assert_allclose(features[-1], np.mean(model.encode(model.embed(images)), axis=1), atol=1e-5)
    similarity = layer_similarity(features)
    np.testing.assert_allclose(similarity, similarity.T)
    np.testing.assert_allclose(np.diag(similarity), 1)
