import keras
import numpy as np

from keras_vit.layers import EncoderBlock, LayerScale

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_multiplies_each_channel_by_its_factor():
    layer = LayerScale(0.1)
    np.testing.assert_allclose(layer(X), 0.1 * X, rtol=1e-6)
    layer.gamma.assign(np.arange(12.0))
    np.testing.assert_allclose(layer(X), X * np.arange(12.0, dtype="float32"), rtol=1e-6)


def test_block_scales_both_branches():
    block = EncoderBlock(num_heads=3, mlp_dim=24, layer_scale=0.5)
    block(X)
    block.scale_attention.gamma.assign(np.linspace(0, 1, 12))
    block.scale_mlp.gamma.assign(np.linspace(2, 1, 12))
    middle = X + np.linspace(0, 1, 12) * np.asarray(block.attention(block.norm_attention(X)))
    expected = middle + np.linspace(2, 1, 12) * np.asarray(block.mlp(block.norm_mlp(middle.astype("float32"))))
    np.testing.assert_allclose(block(X), expected, atol=1e-5)


def test_factors_of_zero_make_the_block_the_identity():
    block = EncoderBlock(num_heads=3, mlp_dim=24, layer_scale=0.0)
    np.testing.assert_array_equal(block(X), X)


def test_small_factors_in_mixed_precision():
    layer = LayerScale(1e-6, dtype="mixed_bfloat16")
    output = layer(np.ones((1, 2, 4), "float32"))
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(output, "float32"), 1e-6, rtol=0.01)
