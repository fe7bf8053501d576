import keras
import numpy as np
import pytest
from randomize import randomize

from keras_vit.models.bit import BiT


@pytest.fixture
def small():
    """Builds a BiT with random weights everywhere, in the head and in the scales that start at zeros too."""

    def build(**changes):
        model = BiT(**{"stages": (1,), "width_factor": 0.5, "num_classes": 4, **changes})
        return randomize(model)

    return build


def test_images_of_any_size(small, images):
    model = small(image_size=16)
    assert model.image_size == (16, 16) and BiT(stages=(1,), width_factor=0.5).image_size is None
    assert model(images[:, :13, :15]).shape == (3, 4)
    resized = model.resized((16, 32))
    assert resized.image_size == (16, 32)
    np.testing.assert_array_equal(resized(images), model(images))


def test_parameter_count_of_v1():
    """For that of the paper's form see tests/test_zoo.py. It has no normalization in shortcuts and root."""
    with keras.StatelessScope(initialize_variables=False):
        model = BiT(form="v1")
    keras.utils.clear_session(free_memory=False)  # forget the variables, or the next scope would initialize them
    assert model.count_params() == 23_508_032 + 2048 * 1000 + 1000


def test_no_stages():
    with pytest.raises(ValueError, match=r"Received: \(\)"):
        BiT(stages=())
