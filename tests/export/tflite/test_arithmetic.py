"""The forms of layer normalization and softmax compute the same, and one of them in half precision, too."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from half_precision import run_in_half
from PIL import Image
from randomize import randomize

import keras_vit
import keras_vit_cli
from keras_vit.export import FORMATS, write_tflite
from keras_vit.export.audit import audit
from keras_vit.export.tflite.arithmetic import (
    FLOAT,
    HALF,
    INTEGERS,
    arithmetic,
    group_norm,
    layer_norm,
    piecewise,
    softmax_times,
    watch_norms,
)
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.graph import read_graph, run_tflite
from keras_vit.export.tflite.signatures import convert
from keras_vit.images.resizing import resized
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.resnet.standardized_conv import GroupNorm

DEMO_IMAGES = Path(keras_vit_cli.__file__).parent / "commands/demo/images"


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


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("form", [FLOAT, HALF, INTEGERS])
@pytest.mark.parametrize("scale", [0, 1e-3, 1, 1e3])
def test_forms_equal_the_group_norm(form, scale, relu):
    random = np.random.default_rng(0)
    maps = (scale * random.standard_normal((2, 6, 5, 12))).astype("float32")
    norm = GroupNorm(4, 1e-5)
    norm.build(maps.shape)
    norm.set_weights(random.standard_normal((2, 12)))
    with watch_norms() as seen:
        group_norm(norm, tf.constant(maps))
    ((watched, sums),) = seen
    assert watched is norm
    expected = 90 * maps.reshape(2, 30, 4, 3).var(axis=(1, 3))
    np.testing.assert_allclose(np.reshape(sums, (2, 4, 3)), np.repeat(expected[..., None], 3, axis=-1), rtol=1e-4)
    norm.square_sums = max(np.min(sums), 1e-12), max(np.max(sums), 1e-11)
    with arithmetic(form):
        found = group_norm(norm, tf.constant(maps), relu=relu)
    np.testing.assert_allclose(found, norm(maps, relu=relu), atol=0.02 if form == INTEGERS else 2e-6)


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


def assert_equal_in_half_precision(model, images, folder, tolerance):
    expected = tf.nn.softmax(model(model.preprocess(images))).numpy()
    assert np.ptp(expected, axis=0).max() > 0.02
    copy, errors = folded_copy(model), {}
    for form in (HALF, FLOAT):
        (path := folder / f"{form}.tflite").write_bytes(convert(copy, form=form))
        found = np.concatenate([run_in_half(path, image) for image in images])
        errors[form] = np.abs(found - expected).max()
    assert errors[HALF] < tolerance
    assert not errors[FLOAT] < 0.1  # or NaN: squares of thousands are infinite


@pytest.mark.extended
def test_massive_activations_in_half_precision(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    assert_equal_in_half_precision(classifier(), images, tmp_path, 0.01)


def crops_of_photographs(model, count):
    """Random parts of the demo's photographs, (count, H, W, 3)."""
    random, crops = np.random.default_rng(0), []
    photographs = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(DEMO_IMAGES.glob("*.jpg"))]
    for _ in range(count):
        photograph, size = random.choice(len(photographs)), random.integers(40, 200)
        top, left = (random.integers(side - size) for side in photographs[photograph].shape[:2])
        crops.append(photographs[photograph][top : top + size, left : left + size])
    return np.clip(resized(crops, model.preprocessing), 0, 255)


@pytest.mark.extended
def test_group_norm_in_half_precision(tmp_path):
    """Convolutions of the trained hybrid reach 400."""
    model = keras_vit.load("cifar10/R6_Ti_4")
    assert_equal_in_half_precision(model, crops_of_photographs(model, 2), tmp_path, 0.03)


@pytest.mark.extended
def test_group_norm_in_integers(tmp_path):
    """Squares in 8 bits would leave nothing of the variance of pale images."""
    model = keras_vit.load("cifar10/R6_Ti_4")
    images = crops_of_photographs(model, 80)
    images[::2] = 128 + 0.2 * (images[::2] - 128)
    (path,) = write_tflite(model, tmp_path, ["int8"], images[:40], signatures=["embed"]).values()
    embeddings, expected = (
        run_tflite(path, images[40:], "embed")[0],
        model.features(model.preprocess(images[40:])).numpy(),
    )
    cosines = (embeddings * expected).sum(-1) / np.linalg.norm(embeddings, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosines.mean() > 0.93 and cosines.min() > 0.4
    left = audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings
    assert {(one.target, one.operation) for one in left} == {("cpu-xnnpack", "GELU"), ("cpu-xnnpack", "QUANTIZE")}


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
