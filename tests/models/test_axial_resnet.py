from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.named_weights import named_weights

# Outputs of scenic's axial_resnet.py, unchanged, for the weights of `set_by_formula`.
GOLDEN = Path(__file__).parents[1] / "data" / "scenic_axial_resnet_io.npz"
TOY = {"image_size": (32, 48), "num_classes": 7, "stages": (1, 1), "width_factor": 0.5}


def set_by_formula(model):
    """Numbers in [-0.3, 0.3], the same everywhere, and scales around 1."""
    for i, (name, weight) in enumerate(sorted(named_weights(model).items())):
        value = 43758.5453 * np.sin(np.arange(np.prod(weight.shape)) + 0.1 * i) % 2 - 1
        weight.assign(value.reshape(weight.shape) * 0.3 + float(name.endswith("gamma")))


def test_outputs_equal_scenic():
    model, golden = AxialResNet(**TOY), np.load(GOLDEN)
    set_by_formula(model)
    for name, weight in named_weights(model).items():
        if name.endswith("relative"):
            # Scenic adds k_o . r^k where the equation has k_p . r^k: both agree without r^k.
            value = weight.numpy()
            quarter = value.shape[1] // 4
            value[:, quarter : 2 * quarter] = 0
            weight.assign(value)
    np.testing.assert_allclose(model(golden["images"]), golden["outputs"], atol=1e-4)


def test_number_of_weights_equals_scenic():
    with keras.StatelessScope(initialize_variables=False):
        model = AxialResNet()
    keras.utils.clear_session(free_memory=False)  # forget the variables, or the next scope would initialize them
    assert model.count_params() == 19_373_640


def test_shapes_of_feature_maps():
    model, maps, shape = AxialResNet(**{**TOY, "stages": (1, 2), "image_size": (36, 50)}), [], (None, 9, 13, 32)
    for unit in model.units:
        shape = unit.compute_output_shape(shape)
        maps.append(shape[1:])
    assert maps == [(9, 13, 128), (5, 7, 256), (5, 7, 256)]
    assert [unit.attention_height.relative.shape[0] for unit in model.units] == [17, 17, 9]
    assert model.features(np.zeros((1, 36, 50, 3), "float32")).shape == (1, 256)


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"width_factor": 0.51}, "32.64 channels"),
        ({"stages": ()}, r"Received: \(\)"),
        ({"stages": (1, 0)}, r"Received: \(1, 0\)"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        AxialResNet(**{**TOY, **changes})
