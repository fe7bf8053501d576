"""ONNX files in onnxruntime compute what Keras computes."""

import json
import sys

import keras
import numpy as np
import onnxruntime
import pytest

from keras_vit import AxialResNet, BiT, Preprocessing
from keras_vit.export.onnx import write_onnx

TOY_NAMES = ["one", "two", "three", "four", "five"]


def randomized(model):
    """Random weights: a zero head would hide differences before it."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
    return model


def noise(model, count):
    return np.random.default_rng(1).uniform(-1, 1, (count, *model.image_size, 3)).astype("float32")


def check(model, path, output="logits", tolerance=1e-4):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [image], [out] = session.get_inputs(), session.get_outputs()
    assert (image.name, image.type, image.shape) == ("images", "tensor(float)", ["batch", *model.image_size, 3])
    assert (out.name, out.type, out.shape[0]) == (output, "tensor(float)", "batch")
    for count in (1, 5):
        images = noise(model, count)
        [found] = session.run(None, {"images": images})
        expected = keras.ops.convert_to_numpy(keras.ops.cast(model(images, training=False), "float32"))
        assert np.ptp(expected) > 0.1
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return session


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.1, "depth": 2},
        {"pooling": "gap", "register_tokens": 2, "image_size": (8, 16), "layer_scale": 0.1, "qk_norm": True},
        {"distillation": True, "position_embedding": "relative", "gelu": "erf"},
        {"pooling": "map", "axial": True, "image_size": 32, "patch_size": 16, "resnet_stages": (1,)},
    ],
)
def test_logits_equal_keras(trained_toy, tmp_path, changes):
    model = trained_toy(**{"depth": 1, **changes})
    assert write_onnx(model, tmp_path / "model.onnx") == tmp_path / "model.onnx"
    check(model, tmp_path / "model.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BiT, AxialResNet])
def test_convolutional_models(tmp_path, kind):
    options = {BiT: {"stages": (1,), "width_factor": 0.5}, AxialResNet: {"stages": (1,)}}[kind]
    model = randomized(kind(image_size=32, num_classes=5, **options))
    check(model, write_onnx(model, tmp_path / "model.onnx"))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["token", "none"])
def test_models_without_a_head_return_features(trained_toy, tmp_path, pooling):
    model = trained_toy(num_classes=0, pooling=pooling, depth=1)
    check(model, write_onnx(model, tmp_path / "model.onnx"), "features")


@pytest.mark.slow
def test_projection_is_named(trained_toy, tmp_path):
    model = trained_toy(projection=True, depth=1)
    session = check(model, write_onnx(model, tmp_path / "model.onnx"), "projection")
    assert "activation" not in session.get_modelmeta().custom_metadata_map


@pytest.mark.slow
def test_mixed_precision_is_exported_in_float32(trained_toy, tmp_path):
    model = trained_toy(dtype="mixed_bfloat16", depth=1)
    session = check(model, write_onnx(model, tmp_path / "model.onnx"), tolerance=0.05)
    precise = trained_toy(depth=1)
    for ours, theirs in zip(precise.weights, model.weights):
        ours.assign(keras.ops.cast(theirs, "float32"))
    [found] = session.run(None, {"images": noise(model, 2)})
    np.testing.assert_allclose(found, precise(noise(model, 2)), atol=1e-4)
    assert model.compute_dtype != "float32"


@pytest.mark.slow
def test_metadata_and_overwriting(trained_toy, tmp_path):
    images = Preprocessing(16, resize="shortest", crop_fraction=0.875, mean=(0.4, 0.5, 0.6))
    model, path = trained_toy(preprocessing=images, depth=1), tmp_path / "new" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(b"an older file")
    session = check(model, write_onnx(model, str(path), TOY_NAMES))
    metadata = session.get_modelmeta().custom_metadata_map
    assert Preprocessing(**json.loads(metadata["preprocessing"])) == images
    assert metadata["class_names"].split("\n") == TOY_NAMES and metadata["activation"] == "softmax"


@pytest.mark.slow
def test_unsupported_operations_raise(trained_toy, tmp_path, monkeypatch):
    import tensorflow as tf

    model = trained_toy(depth=1)
    monkeypatch.setattr(model, "call", lambda images: tf.math.lbeta(tf.abs(model.features(images))[..., None]))
    (tmp_path / "model.onnx").write_text("precious")
    with pytest.raises(ValueError, match="an operation that ONNX does not support.*Lgamma"):
        write_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_invalid_arguments_raise_before_any_work(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.Model, "export", lambda *a, **k: pytest.fail("exported"))
    model, path = toy(), tmp_path / "new" / "model.onnx"
    with pytest.raises(ValueError, match="ends in .onnx. Received: .*model"):
        write_onnx(model, tmp_path / "model")
    with pytest.raises(ValueError, match="each of the 5 classes. Received: 2 names"):
        write_onnx(model, path, ["a", "b"])
    with pytest.raises(ValueError, match=r"Expected a classifier that returns \(batch, classes\)"):
        write_onnx(toy(pooling="none"), path)
    with pytest.raises(ValueError, match="see keras_vit.load. Received: a Sequential"):
        write_onnx(keras.Sequential(), path, ["a"])
    with pytest.raises(ValueError, match=r"model.resized\(224\)"):
        write_onnx(BiT(stages=(1,), width_factor=0.5, num_classes=5), path)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="2.35 GiB of float32 weights"):
        patch.setattr(type(model), "count_params", lambda self: 632_045_800)
        write_onnx(model, path)
    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match="requires Keras's TensorFlow backend. Received: torch"),
    ):
        patch.setattr(keras.backend, "backend", lambda: "torch")
        write_onnx(model, path)
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_vit\[onnx\]' \(import of tf2onnx"):
        write_onnx(toy(), tmp_path / "new" / "model.onnx")
    assert not list(tmp_path.iterdir())
