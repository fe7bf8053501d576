"""The forms of layer normalization and softmax compute the same, and one of them in half precision, too."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from half_precision import run_in_half
from randomize import randomize

import keras_vit
from keras_vit.export import FORMATS, write_tflite
from keras_vit.export.audit import audit
from keras_vit.export.tflite.arithmetic import (
    FLOAT,
    HALF,
    INTEGERS,
    arithmetic,
    layer_norm,
    piecewise,
    softmax_times,
    watch_norms,
)
from keras_vit.export.tflite.convert import convert
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.graph import read_graph
from keras_vit.layers.norm import LayerNorm


@pytest.mark.parametrize("form", [FLOAT, HALF, INTEGERS])
@pytest.mark.parametrize("scale", [0, 1e-6, 1e-3, 1, 1e3, 1e6])
@pytest.mark.parametrize("shape", [(1, 5, 48), (1, 3, 5, 48)], ids=["tokens", "heads"])
def test_forms_equal_the_layer(form, scale, shape):
    random = np.random.default_rng(0)
    tokens = scale * random.standard_normal(shape).astype("float32")
    norm = LayerNorm()
    norm.build(tokens.shape)
    norm.set_weights(random.standard_normal((2, 48)))
    with watch_norms() as seen:
        layer_norm(norm, tf.constant(tokens))
    ((watched, sums),) = seen
    assert watched is norm
    np.testing.assert_allclose(sums, 48 * tokens.var(axis=-1, keepdims=True), rtol=1e-4)
    norm.square_sums = max(np.min(sums), 1e-12), max(np.max(sums), 1e-11)
    with arithmetic(form):
        found = layer_norm(norm, tf.constant(tokens))
    np.testing.assert_allclose(found, norm(tokens), atol=0.02 if form == INTEGERS else 2e-6)


@pytest.mark.parametrize("low,high,error", [(1, 197, 0.01), (0.05, 3, 0.006), (2, 4, 0.0005)])
def test_piecewise_equals_an_inverse_root(low, high, error):
    x = np.geomspace(low, high, 1000).astype("float32").reshape(1, 500, 1, 2) / [1, 2]
    weights = [1.0, 2.0]
    found = piecewise(tf.constant(x, "float32"), weights, lambda x: x**-0.5, low, 2 * high)
    expected = np.clip(x @ weights, low, 2 * high) ** -0.5
    assert np.abs(found[..., 0] / expected - 1).max() < error


def test_piecewise_is_constant_beyond_its_ends():
    found = piecewise(tf.constant([0.0, 1, 9, 50]).numpy().reshape(1, 4, 1, 1), [1.0], lambda x: 1 / x, 1, 9)
    below, low, high, above = np.ravel(found)
    assert below == low == pytest.approx(1, rel=0.01) and above == high == pytest.approx(1 / 9, rel=0.01)


@pytest.mark.parametrize("length,spread", [(1, 1), (2, 1), (197, 0.01), (197, 1), (197, 8)])
def test_softmax_times_values(length, spread):
    random = np.random.default_rng(0)
    logits = (spread * random.standard_normal((1, 3, 7, length))).astype("float32")
    value = random.standard_normal((1, 3, length, 4)).astype("float32")
    expected = tf.matmul(tf.nn.softmax(logits), value).numpy()
    np.testing.assert_allclose(softmax_times(tf.constant(logits), value), expected, atol=0.01 * np.abs(expected).max())


def classifier():
    """Three of its patches have activations of 1,500 and -900 in two channels, as those of ViTs without registers."""
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=4, depth=2, width=64, mlp_dim=64, num_heads=2, num_classes=4, gelu="erf"
    )
    randomize(model, 0.2, seed=0)
    table = model.positions.table.numpy()
    table[..., [1, 4, 9], 7] += 1500
    table[..., [1, 4, 9], 20] -= 900
    model.positions.table.assign(table)
    return model


@pytest.mark.extended
def test_massive_activations_in_half_precision(tmp_path):
    model = classifier()
    images = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    expected = tf.nn.softmax(model(images / 127.5 - 1)).numpy()
    assert np.ptp(expected, axis=0).max() > 0.02  # the patches matter
    copy, errors = folded_copy(model), {}
    for form in (HALF, FLOAT):
        (path := tmp_path / f"{form}.tflite").write_bytes(convert(copy, form=form))
        found = np.concatenate([run_in_half(path, image) for image in images])
        errors[form] = np.abs(found - expected).max()
    assert errors[HALF] < 0.01
    assert not errors[FLOAT] < 0.1  # or NaN: squares of thousands are infinite


@pytest.mark.slow
def test_int8_of_normalized_queries_and_keys_is_in_xnnpack(tmp_path):
    """Untrained: the query of the class token is the same in all images, and smaller than in floats."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=8, depth=1, width=32, mlp_dim=32, num_heads=2, num_classes=4, qk_norm=True
    )
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3)).astype("float32")
    left = audit(write_tflite(model, tmp_path, ["int8"], images)["int8"], ["cpu-xnnpack"]).findings
    assert {one.operation for one in left} == {"QUANTIZE", "GELU", "SOFTMAX"}  # SOFTMAX of the classes


def test_formats_for_gpus_have_the_form_for_half_precision(artifacts):
    divided = {name for name in FORMATS if "ABS" in {one.name for one in read_graph(artifacts[name])}}
    assert divided == {"float32", "float16"}
