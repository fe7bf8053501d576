import keras
import numpy as np
import pytest
from goldens import golden_io, golden_weights
from randomize import randomize

from keras_vit.models.bit import BiT
from keras_vit.named_weights import named_weights
from keras_vit.weights.sources.bit import BIT_PAPER, BIT_V1

FORMS = {"v1": {"form": "v1"}, "paper": {"form": "paper", "pool_padding": "edge"}}


@pytest.fixture
def small():
    """Builds a BiT with random weights everywhere, in the head and in the scales that start at zeros too."""

    def build(**changes):
        model = BiT(**{"stages": (1,), "width_factor": 0.5, "num_classes": 4, **changes})
        return randomize(model)

    return build


@pytest.mark.parametrize("form", FORMS)
def test_equals_big_vision(form):
    model = BiT(stages=(1, 1), num_classes=10, **FORMS[form])
    arrays, io = golden_weights(f"big_vision_bit_{form}"), golden_io(f"big_vision_bit_{form}")
    naming = {"v1": BIT_V1, "paper": BIT_PAPER}[form].naming.resnet
    for name, variable in named_weights(model).items():
        variable.assign(arrays.pop(naming.name(name)).reshape(variable.shape))
    assert not arrays
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


def test_pool_padding_changes_outputs(small, images):
    zeros, edge = (small(pool_padding=padding) for padding in ("zeros", "edge"))
    assert np.abs(np.asarray(zeros(images)) - np.asarray(edge(images))).max() > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_the_head_of_the_pooled_map(small, images, form):
    model = small(**FORMS[form])
    maps = np.asarray(model.feature_map(images))
    assert maps.shape == (3, 4, 4, 128) and maps.min() >= 0
    np.testing.assert_allclose(model.features(images), maps.mean((1, 2)), atol=1e-5)
    kernel, bias = model.head.get_weights()
    np.testing.assert_allclose(model(images), maps.mean((1, 2)) @ kernel + bias, atol=1e-4)


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
