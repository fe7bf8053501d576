import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_weights

from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.layers.resnet.bottleneck import Bottleneck, PreActivationBottleneck
from keras_vit.models.axial_resnet import AxialBottleneck
from keras_vit.weights.sources.bit import BIT_PAPER, BIT_V1


def images(height, width, channels=3):
    return np.random.default_rng(0).uniform(-1, 1, (2, height, width, channels)).astype("float32")


class Reference:
    """The networks in plain TensorFlow and float64, from a file's arrays. For form "v1" there are goldens."""

    def __init__(self, arrays, form):
        self.arrays, self.form = arrays, form

    def conv(self, x, name, stride=1):
        kernel = self.arrays[f"{name}/kernel"].astype("float64")
        centered = kernel - kernel.mean((0, 1, 2))
        if self.form == "timm":
            return tf.nn.conv2d(x, centered / np.sqrt(kernel.var((0, 1, 2)) + 1e-8), stride, "SAME")
        side = kernel.shape[0] // 2
        padding = [[0, 0], [side, side], [side, side], [0, 0]]
        return tf.nn.conv2d(x, centered / np.sqrt(kernel.var((0, 1, 2)) + 1e-10), stride, padding)

    def norm(self, x, name):
        batch, h, w, channels = x.shape
        groups = np.reshape(x, (batch, h * w, 32, channels // 32))
        centered = groups - groups.mean((1, 3), keepdims=True)
        normal = centered / np.sqrt(groups.var((1, 3), keepdims=True) + 1e-5)
        return normal.reshape(x.shape) * self.arrays[f"{name}/scale"] + self.arrays[f"{name}/bias"]

    def root(self, x, border):
        if self.form != "paper":
            x = np.maximum(self.norm(self.conv(x, "conv_root", 2), "gn_root"), 0)
            return tf.nn.max_pool2d(x, 3, 2, "SAME")
        x = np.pad(self.conv(x, "root_block/conv_root", 2), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=border)
        return tf.nn.max_pool2d(x, 3, 2, "VALID")

    def unit(self, x, name, stride):
        projects = f"{name}/conv_proj/kernel" in self.arrays
        if self.form != "paper":
            y = np.maximum(self.norm(self.conv(x, f"{name}/conv1"), f"{name}/gn1"), 0)
            y = np.maximum(self.norm(self.conv(y, f"{name}/conv2", stride), f"{name}/gn2"), 0)
            y = self.norm(self.conv(y, f"{name}/conv3"), f"{name}/gn3")
            x = self.norm(self.conv(x, f"{name}/conv_proj", stride), f"{name}/gn_proj") if projects else x
            return np.maximum(x + y, 0)
        y = np.maximum(self.norm(x, f"{name}/gn1"), 0)
        x = self.conv(y, f"{name}/conv_proj", stride) if projects else x
        y = np.maximum(self.norm(self.conv(y, f"{name}/conv1"), f"{name}/gn2"), 0)
        y = np.maximum(self.norm(self.conv(y, f"{name}/conv2", stride), f"{name}/gn3"), 0)
        return x + self.conv(y, f"{name}/conv3")


CASES = {
    "v1": ("vit_jax_hybrid_r50like", (2, 1), ["block1/unit1", "block1/unit2", "block2/unit1"]),
    "paper": ("big_vision_bit_paper", (1, 1), ["block1/unit01", "block2/unit01"]),
}


@pytest.mark.parametrize(
    "form,pool_padding,size",
    [
        ("timm", "zeros", (31, 46)),
        ("paper", "zeros", (31, 46)),
        ("paper", "edge", (32, 32)),
    ],
)
def test_equals_the_network_in_plain_tensorflow(form, pool_padding, size):
    names = "paper" if form == "paper" else "v1"
    golden, stages, units = CASES[names]
    arrays, x = golden_weights(golden), images(*size)
    backbone = ResNetBackbone(stages, form=form, pool_padding=pool_padding, name="backbone")
    backbone.build(x.shape)
    naming = (BIT_PAPER if form == "paper" else BIT_V1).naming.resnet
    for weight in backbone.weights:
        weight.assign(arrays[naming.name(weight.path)].reshape(weight.shape))
    reference = Reference(arrays, form)
    expected = reference.root(x.astype("float64"), 0 if pool_padding == "zeros" else -np.inf)
    for unit in units:
        expected = reference.unit(expected, unit, 2 if unit.startswith("block2") else 1)
    output = backbone(x)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-4)
    assert output.shape == backbone.compute_output_shape(x.shape)
    assert np.abs(expected).max() > 1


@pytest.mark.parametrize("form", CASES)
def test_any_image_size_in_a_graph_and_in_mixed_precision(form):
    backbone = ResNetBackbone((1, 1), width_factor=0.5, form=form, dtype="mixed_bfloat16")
    full = ResNetBackbone((1, 1), width_factor=0.5, form=form)
    for layer in (backbone, full):
        layer.build((None, None, None, 3))
    full.set_weights(backbone.get_weights())
    assert backbone.total_stride == 8 and backbone.compute_output_shape((None, None, None, 3)) == (
        None,
        None,
        None,
        256,
    )
    call = tf.function(backbone, input_signature=[tf.TensorSpec((None, None, None, 3))])
    for height, width in ((16, 17), (18, 15), (1, 19)):
        output, expected = call(images(height, width)), full(images(height, width))
        assert output.dtype == "bfloat16" and output.shape == expected.shape
        assert (
            expected.shape
            == backbone.compute_output_shape((2, height, width, 3))
            == (2, -(-height // 8), -(-width // 8), 256)
        )
        np.testing.assert_allclose(tf.cast(output, "float32"), expected, atol=0.03 * np.abs(expected).max())


def test_initial_units_and_epsilons():
    x = images(6, 5, 128)
    np.testing.assert_array_equal(Bottleneck(32)(x), np.maximum(x, 0))  # relu of the shortcut
    assert not np.allclose(PreActivationBottleneck(32)(x), x, atol=0.1)
    for form, *expected in (("v1", 1e-5, "deviation", 1e-6), ("timm", 1e-8, "variance", 1e-5)):
        unit = Bottleneck(32, 2, form)
        unit.build((None, 8, 8, 64))
        for conv, norm in ((unit.conv_proj, unit.gn_proj), (unit.conv2, unit.gn2)):
            assert [conv.epsilon, conv.epsilon_on, norm.epsilon] == expected


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: ResNetBackbone((3, 0)), r"Received: \(3, 0\)"),
        (lambda: ResNetBackbone(50), "Received: 50"),
        (lambda: ResNetBackbone(width_factor=0.7), "44.8 filters"),
        (lambda: ResNetBackbone(width_factor=0.51), "32.64 filters"),
        (lambda: ResNetBackbone(form="v2"), "Received: 'v2'"),
        (lambda: ResNetBackbone(form="paper", pool_padding="same"), "Received: 'same'"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_axial_bottleneck_equals_its_equation():
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
    assert unit.compute_output_shape(maps.shape) == expected.shape
