import numpy as np
import pytest

from keras_vit.inspect import position_similarity


def test_similarity_is_a_cosine_on_the_grid(toy):
    model = toy(image_size=(8, 12))
    similarity = position_similarity(model)
    assert similarity.shape == (2, 3, 2, 3)
    rows = model.positions.table.numpy()[0, 1:]
    expected = rows[1] @ rows[5] / np.linalg.norm(rows[1]) / np.linalg.norm(rows[5])
    np.testing.assert_allclose(similarity[0, 1, 1, 2], expected, atol=1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", similarity), 1, atol=1e-6)


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d", "sincos_2d"])
def test_prefix_tokens_without_positions(toy, kind):
    model = toy(position_embedding=kind, prefix_positions=False, register_tokens=2)
    rows = np.asarray(model.positions.table)[0]
    assert rows.shape[0] == 16
    expected = rows @ rows.T / np.outer(*[np.linalg.norm(rows, axis=1)] * 2)
    np.testing.assert_allclose(position_similarity(model).reshape(16, 16), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "relative"])
def test_models_without_position_embeddings_raise(toy, kind):
    with pytest.raises(ValueError, match=f"adds no position embeddings.*: position_embedding='{kind}'"):
        position_similarity(toy(position_embedding=kind))
