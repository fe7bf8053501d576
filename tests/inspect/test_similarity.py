import numpy as np

from keras_vit.inspect import position_similarity


def test_similarity_is_a_cosine_on_the_grid(toy):
    model = toy(image_size=(8, 12))
    similarity = position_similarity(model)
    assert similarity.shape == (2, 3, 2, 3)
    rows = model.positions.table.numpy()[0, 1:]
    expected = rows[1] @ rows[5] / np.linalg.norm(rows[1]) / np.linalg.norm(rows[5])
    np.testing.assert_allclose(similarity[0, 1, 1, 2], expected, atol=1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", similarity), 1, atol=1e-6)
