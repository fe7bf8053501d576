import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import golden_weights

from keras_vit.layers.resnet.backbone import ResNetBackbone, ResNetRoot, ResNetStage
from keras_vit.layers.resnet.bottleneck import Bottleneck, PreActivationBottleneck
from keras_vit.weights.sources.bit import BIT_PAPER, BIT_V1


def images(height, width, channels=3):
    return np.random.default_rng(0).uniform(-1, 1, (2, height, width, channels)).astype("float32")


class Reference:
    """The networks in plain TensorFlow and float64, from a file's arrays."""

    def __init__(self, arrays, form):
        self.arrays, self.form = arrays, form

    def conv(self, x, name, stride=1):
        kernel = self.arrays[f"{name}/kernel"].astype("float64")
        centered = kernel - kernel.mean((0, 1, 2))
        if self.form == "v1":
            return tf.nn.conv2d(x, centered / (kernel.std((0, 1, 2)) + 1e-5), stride, "SAME")
        if self.form == "timm":
            return tf.nn.conv2d(x, centered / np.sqrt(kernel.var((0, 1, 2)) + 1e-8), stride, "SAME")
        side = kernel.shape[0] // 2
        padding = [[0, 0], [side, side], [side, side], [0, 0]]
        return tf.nn.conv2d(x, centered / np.sqrt(kernel.var((0, 1, 2)) + 1e-10), stride, padding)

    def norm(self, x, name):
        batch, h, w, channels = x.shape
        groups = np.reshape(x, (batch, h * w, 32, channels // 32))
        centered = groups - groups.mean((1, 3), keepdims=True)
        epsilon = 1e-6 if self.form == "v1" else 1e-5
        normal = centered / np.sqrt(groups.var((1, 3), keepdims=True) + epsilon)
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


@pytest.mark.parametrize("size", [(32, 32), (31, 46)])
@pytest.mark.parametrize(
    "form,pool_padding", [("v1", "zeros"), ("timm", "zeros"), ("paper", "zeros"), ("paper", "edge")]
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


@pytest.mark.slow
@pytest.mark.parametrize("form", CASES)
def test_output_shape(form):
    for stages, stride, channels in (((), 4, 32), ((1, 1, 1), 16, 512)):
        backbone = ResNetBackbone(stages, width_factor=0.5, form=form)
        assert backbone.total_stride == stride
        assert backbone.compute_output_shape((None, None, None, 3)) == (None, None, None, channels)
        for height, width in ((16, 17), (18, 15), (1, 19)):
            shape = backbone.compute_output_shape((2, height, width, 3))
            assert shape == (2, -(-height // stride), -(-width // stride), channels)
            call = tf.function(backbone).get_concrete_function(tf.TensorSpec((2, height, width, 3)))
            assert call.output_shapes == shape


@pytest.mark.slow
@pytest.mark.parametrize("form", CASES)
def test_any_image_size_in_a_graph_and_in_mixed_precision(form):
    backbone = ResNetBackbone((1, 1), width_factor=0.5, form=form, dtype="mixed_bfloat16")
    full = ResNetBackbone((1, 1), width_factor=0.5, form=form)
    for layer in (backbone, full):
        layer.build((None, None, None, 3))
    full.set_weights(backbone.get_weights())
    call = tf.function(backbone, input_signature=[tf.TensorSpec((None, None, None, 3))])
    for size in ((32, 32), (19, 45)):
        output = call(images(*size))
        expected = tf.cast(full(images(*size)), "float32")
        assert output.dtype == "bfloat16" and output.shape == expected.shape
        np.testing.assert_allclose(tf.cast(output, "float32"), expected, atol=0.03 * np.abs(expected).max())
    assert {weight.dtype for weight in backbone.weights} == {"float32"}


def test_initial_units_of_v1_are_relu_of_the_shortcut():
    x = images(6, 5, 128)
    np.testing.assert_array_equal(Bottleneck(32)(x), np.maximum(x, 0))
    assert not np.allclose(PreActivationBottleneck(32)(x), x, atol=0.1)


def test_epsilons_of_timm():
    for form, *expected in (("v1", 1e-5, "deviation", 1e-6), ("timm", 1e-8, "variance", 1e-5)):
        unit = Bottleneck(32, 2, form)
        unit.build((None, 8, 8, 64))
        for conv, norm in ((unit.conv_proj, unit.gn_proj), (unit.conv2, unit.gn2)):
            assert [conv.epsilon, conv.epsilon_on, norm.epsilon] == expected
    with pytest.raises(ValueError, match="see PreActivationBottleneck. Received: 'paper'"):
        Bottleneck(32, form="paper")


def test_shortcut_is_projected_where_the_shape_changes():
    for unit in (Bottleneck, PreActivationBottleneck):
        for channels, stride, projects in ((128, 1, False), (128, 2, True), (64, 1, True)):
            layer = unit(32, stride)
            assert layer(images(7, 6, channels)).shape == layer.compute_output_shape((2, 7, 6, channels))
            assert bool(layer.conv_proj) == projects
            assert any("proj" in weight.path for weight in layer.weights) == projects


def test_only_the_first_unit_of_a_stage_has_the_stride():
    stage = ResNetStage(3, 32, 2)
    assert [unit.stride for unit in stage.units] == [2, 1, 1]
    assert stage(images(9, 8, 64)).shape == stage.compute_output_shape((2, 9, 8, 64)) == (2, 5, 4, 128)


@pytest.mark.slow
def test_parameter_counts():
    counts = {(3, 4, 9): 11_894_848, (3, 4, 6, 3): 23_508_032, (): 7 * 7 * 3 * 64 + 2 * 64}
    for stages, count in counts.items():
        with keras.StatelessScope(initialize_variables=False):
            backbone = ResNetBackbone(stages)
            backbone.build((None, 224, 224, 3))
        keras.utils.clear_session()  # forget the variables, or the next scope would initialize them
        assert backbone.count_params() == count
    assert sum("conv" in weight.path for weight in backbone.weights) == 1


def test_bad_arguments():
    cases = [
        ({"stages": (3, 0)}, r"such as \(3, 4, 6, 3\).*Received: \(3, 0\)"),
        ({"stages": 50}, "Received: 50"),
        ({"width_factor": 0.7}, "width_factor=0.7 has 44.8 filters.*multiple of 0.5"),
        ({"width_factor": 0.51}, "width_factor=0.51 has 32.64 filters"),
        ({"form": "v2"}, "v1, timm, paper. Received: 'v2'"),
        ({"form": "paper", "pool_padding": "same"}, "zeros, edge. Received: 'same'"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            ResNetBackbone(**arguments)
    for build in (lambda: ResNetRoot(32, "v2"), lambda: ResNetStage(1, 32, 1, "v2")):
        with pytest.raises(ValueError, match="Received: 'v2'"):
            build()


@pytest.mark.parametrize(
    "layer",
    [
        Bottleneck(8, 2, "timm"),
        PreActivationBottleneck(8, 2),
        ResNetRoot(32, "timm", "edge"),
        ResNetStage(2, 32, 2, "timm"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_parts_from_config(layer):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()
