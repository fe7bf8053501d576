import numpy as np
import pytest

from keras_vit.inspect import nearest_neighbors


def test_neighbors_are_ordered_by_cosine():
    features = np.array([[10.0, 10.0], [0.0, 0.1], [1.0, 0.1]])
    order, cosines = nearest_neighbors([[0.0, 2.0], [1.0, 0.0]], features, 2)
    np.testing.assert_array_equal(order, [[1, 0], [2, 0]])
    np.testing.assert_allclose(cosines, [[1, 0.5**0.5], [1 / 1.01**0.5, 0.5**0.5]])


def test_too_many_neighbors():
    with pytest.raises(ValueError, match="between 1 and 3. Received: 5"):
        nearest_neighbors(np.ones((1, 2)), np.ones((3, 2)))


def test_features_of_different_widths():
    with pytest.raises(ValueError, match=r"Expected shapes .* Received: \(1, 2\), \(3, 4\)"):
        nearest_neighbors(np.ones((1, 2)), np.ones((3, 4)))
