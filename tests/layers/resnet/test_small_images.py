import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers import SmallImageResNet


def images(height, width):
    return np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype("float32")


class Reference:
    """The network in plain TensorFlow and float64, from the layer's weights."""

    def __init__(self, layer):
        self.weights = {
            variable.path.removeprefix(f"{layer.path}/"): np.float64(variable) for variable in layer.weights
        }

    def conv(self, x, name, stride=1):
        kernel = self.weights[f"{name}/kernel"]
        kernel = (kernel - kernel.mean((0, 1, 2))) / (kernel.std((0, 1, 2)) + 1e-5)
        return tf.nn.conv2d(x, kernel, stride, "SAME").numpy()

    def norm_relu(self, x, name):
        batch, height, width, channels = x.shape
        groups = x.reshape(batch, height * width, 16, channels // 16)
        groups = (groups - groups.mean((1, 3), keepdims=True)) / np.sqrt(groups.var((1, 3), keepdims=True) + 1e-5)
        return np.maximum(groups.reshape(x.shape) * self.weights[f"{name}/gamma"] + self.weights[f"{name}/beta"], 0)

    def __call__(self, x, stages):
        x = self.conv(np.float64(x), "conv_root")
        for stage, units in enumerate(stages, start=1):
            for unit in range(1, units + 1):
                name, stride = f"block{stage}_{unit}", 2 if unit == 1 else 1
                y = self.norm_relu(x, f"{name}/gn1")
                shortcut = self.conv(y, f"{name}/conv_proj", stride) if unit == 1 else x
                y = self.norm_relu(self.conv(y, f"{name}/conv1", stride), f"{name}/gn2")
                x = shortcut + self.conv(y, f"{name}/conv2")
        return self.norm_relu(x, "norm")


@pytest.mark.parametrize("size,stages,shape", [((8, 8), (2, 1), (2, 2, 256)), ((7, 10), (1,), (4, 5, 128))])
def test_outputs_equal_plain_tensorflow(size, stages, shape):
    layer = SmallImageResNet(stages)
    layer.build((None, *size, 3))
    random = np.random.default_rng(1)
    for variable in layer.weights:
        variable.assign(random.normal(1.0, 0.5, variable.shape))
    outputs = layer(images(*size))
    assert outputs.shape[1:] == shape == layer.compute_output_shape((None, *size, 3))[1:]
    assert layer.channels == shape[-1] and layer.total_stride == 2 ** len(stages)
    np.testing.assert_allclose(outputs, Reference(layer)(images(*size), stages), rtol=1e-4, atol=1e-4)


def test_hybrid_for_small_images():
    model = keras_vit.ViT("R6+Ti/4", image_size=16, depth=1, width=8, mlp_dim=8, num_heads=1, num_classes=3)
    assert isinstance(model.backbone, SmallImageResNet) and model.grid == (4, 4)
    assert model.patch_embedding.projection.kernel.shape == (1, 1, 256, 8)
