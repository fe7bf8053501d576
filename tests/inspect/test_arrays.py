"""Filters, similarities of positions, layers and images, and quantized attention: arrays in, arrays out."""

import numpy as np
import pytest

from keras_vit.inspect import (
    filter_components,
    layer_features,
    layer_similarity,
    linear_cka,
    nearest_neighbors,
    position_similarity,
    quantize_rows,
)

RANDOM = np.random.default_rng(0)


def test_components_explain_most_of_the_filters(toy):
    model, kernel, stripes = toy(width=96), RANDOM.standard_normal((4, 4, 3, 96)), np.zeros((4, 4, 3))
    stripes[::2], stripes[1::2] = 1.0, -1.5
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


def test_position_similarity_is_a_cosine_on_the_grid(toy):
    model = toy(image_size=(8, 12))
    similarity, rows = position_similarity(model), model.positions.table.numpy()[0, 1:]
    assert similarity.shape == (2, 3, 2, 3)
    expected = rows[1] @ rows[5] / np.linalg.norm(rows[1]) / np.linalg.norm(rows[5])
    np.testing.assert_allclose(similarity[0, 1, 1, 2], expected, atol=1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", similarity), 1, atol=1e-6)


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d", "sincos_2d"])
def test_position_similarity_of_prefix_tokens_without_positions(toy, kind):
    model = toy(position_embedding=kind, prefix_positions=False, register_tokens=2)
    rows = np.asarray(model.positions.table)[0]
    assert rows.shape[0] == 16
    expected = rows @ rows.T / np.outer(*[np.linalg.norm(rows, axis=1)] * 2)
    np.testing.assert_allclose(position_similarity(model).reshape(16, 16), expected, atol=1e-6)


def test_cka():
    x = RANDOM.standard_normal((20, 6))
    rotation, _ = np.linalg.qr(RANDOM.standard_normal((6, 6)))
    assert abs(linear_cka(x, 3 * x @ rotation + 5) - 1) < 1e-12
    x, y = RANDOM.standard_normal((30, 4)), RANDOM.standard_normal((30, 7))
    x, y = x - x.mean(0), y - y.mean(0)
    # The other formula of the paper.
    expected = np.linalg.norm(y.T @ x) ** 2 / np.linalg.norm(x.T @ x) / np.linalg.norm(y.T @ y)
    assert abs(linear_cka(x + 1, y) - expected) < 1e-12 and expected < 0.5
    assert linear_cka(np.ones((5, 3)), RANDOM.standard_normal((5, 3))) == 0


@pytest.mark.parametrize("changes", [{"pooling": "gap"}, {"position_placement": "every_layer"}])
def test_features_of_the_last_layer_are_the_input_of_the_final_normalization(trained_toy, images, changes):
    model = trained_toy(**changes)
    features = layer_features(model, images, batch_size=2)
    assert [one.shape for one in features] == [(3, 12)] * 2
    model.encoder.norm = None
    np.testing.assert_allclose(features[-1], np.mean(model.encode(model.embed(images)), axis=1), atol=1e-5)
    similarity = layer_similarity(features)
    np.testing.assert_allclose(similarity, similarity.T)
    np.testing.assert_allclose(np.diag(similarity), 1)


def test_neighbors_are_ordered_by_cosine():
    order, cosines = nearest_neighbors([[0.0, 2.0], [1.0, 0.0]], np.array([[10.0, 10.0], [0.0, 0.1], [1.0, 0.1]]), 2)
    np.testing.assert_array_equal(order, [[1, 0], [2, 0]])
    np.testing.assert_allclose(cosines, [[1, 0.5**0.5], [1 / 1.01**0.5, 0.5**0.5]])


def test_error_of_quantized_rows_is_at_most_half_a_step():
    weights = RANDOM.dirichlet(np.full(50, 0.2), (3, 4)).astype("float32")  # rows that sum to 1, some of them spiky
    levels, steps = quantize_rows(weights)
    assert (levels.dtype, steps.dtype, levels.shape, steps.shape) == ("uint8", "float32", (3, 4, 50), (3, 4))
    assert (levels.max(axis=-1) == 255).all()
    lost = np.abs(levels * steps[..., None] - weights)
    assert (lost <= 0.5001 * steps[..., None]).all() and lost.max() > 0
    levels, steps = quantize_rows(np.array([[0, 0], [0, 1e-40]]))
    assert levels[0].tolist() == [0, 0] and steps[0] == 0 and (levels * steps[:, None]).max() < 1e-39


HYBRID = {"image_size": 64, "patch_size": 16, "resnet_stages": (1, 1, 1)}


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda toy: filter_components(toy()), "1 and 12. Received: 28"),
        (lambda toy: filter_components(toy(**HYBRID), 3), "hybrid"),
        (lambda toy: position_similarity(toy(position_embedding="none")), "'none'"),
        (lambda toy: position_similarity(toy(position_embedding="relative")), "'relative'"),
        (lambda toy: linear_cka(np.ones((4, 3)), np.ones((5, 3))), r"\(4, 3\), \(5, 3\)"),
        (lambda toy: nearest_neighbors(np.ones((1, 2)), np.ones((3, 2))), "1 and 3. Received: 5"),
        (lambda toy: nearest_neighbors(np.ones((1, 2)), np.ones((3, 4))), r"\(1, 2\), \(3, 4\)"),
        *((lambda toy, x=x: quantize_rows([[0.5, x]]), "finite, nonnegative") for x in (-1.0, np.nan, np.inf)),
    ],
)
def test_wrong_arguments(toy, call, message):
    with pytest.raises(ValueError, match=message):
        call(toy)
