import numpy as np

from keras_vit.layers.resnet.axial_bottleneck import AxialBottleneck


def test_equals_its_equation():
    unit = AxialBottleneck(32, stride=2)
    maps = np.random.default_rng(0).standard_normal((2, 4, 6, 32)).astype("float32")
    np.testing.assert_allclose(unit(maps), np.maximum(unit.gn_proj(unit.conv_proj(maps)), 0), atol=1e-6)
    unit.gn3.gamma.assign(np.linspace(0.5, 1.5, 128))
    branch = np.maximum(unit.gn1(unit.conv1(maps)), 0)
    branch = np.asarray(unit.attention_width(unit.attention_height(branch)))
    branch = branch.reshape(2, 2, 2, 3, 2, 32).mean(axis=(2, 4))  # (B, h, w, F)
    branch = unit.gn3(unit.conv3(np.maximum(branch, 0)))
    expected = np.maximum(unit.gn_proj(unit.conv_proj(maps)) + branch, 0)
    np.testing.assert_allclose(unit(maps), expected, atol=1e-5)
    copy = AxialBottleneck.from_config(unit.get_config())
    assert copy.get_config() == unit.get_config()
    assert unit.compute_output_shape(maps.shape) == expected.shape
