"""ONNX files in onnxruntime compute what Keras computes."""

import json
import sys
from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx.reference import ReferenceEvaluator
from randomize import randomize

import keras_vit
from keras_vit import AxialResNet, BiT, Preprocessing
from keras_vit.export import check_parity
from keras_vit.export.onnx.convert import write_onnx
from keras_vit.layers import Mlp
from keras_vit.layers.norm import LayerNorm

TOY_NAMES = ["one", "two", "three", "four", "five"]


def noise(model, count):
    return np.random.default_rng(1).uniform(-1, 1, (count, *model.image_size, 3)).astype("float32")


def check(model, path, output="logits", tolerance=1e-5):
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
    nodes = Counter(node.op_type for node in onnx.load(path).graph.node)
    norms = sum(isinstance(layer, LayerNorm) for layer in model._flatten_layers())
    assert nodes["LayerNormalization"] == norms
    assert nodes["Gelu"] == sum(isinstance(layer, Mlp) for layer in model._flatten_layers())
    assert nodes["Tanh"] == nodes["Erf"] == 0
    return session


AXIAL = {"pooling": "map", "axial": True, "image_size": 32, "patch_size": 16, "resnet_stages": (1,)}
OPTIONS = [
    (
        {"pooling": "gap", "register_tokens": 2, "image_size": (8, 16), "qk_norm": True, "projection": True},
        "projection",
    ),
    ({"distillation": True, "position_embedding": "relative", "gelu": "erf", "qk_norm": True}, "logits"),
    pytest.param(AXIAL, "logits", marks=pytest.mark.extended),
    pytest.param({"num_classes": 0}, "features", marks=pytest.mark.extended),
    ({"num_classes": 0, "pooling": "none"}, "features"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "output"), OPTIONS)
def test_outputs_equal_keras(trained_toy, tmp_path, changes, output):
    model = trained_toy(**{"depth": 1, **changes})
    session = check(model, write_onnx(model, tmp_path / "model.onnx"), output)
    assert ("activation" in session.get_modelmeta().custom_metadata_map) == (output == "logits")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning")
@pytest.mark.parametrize("kind", [BiT, pytest.param(AxialResNet, marks=pytest.mark.extended)])
def test_convolutional_models(tmp_path, kind):
    options = {BiT: {"stages": (1,), "width_factor": 0.5}, AxialResNet: {"stages": (1,)}}[kind]
    model = randomize(kind(image_size=32, num_classes=5, **options))
    check(model, write_onnx(model, tmp_path / "model.onnx"))
    model.export(str(tmp_path / "keras.onnx"), format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "keras.onnx")
    [found] = session.run(None, {session.get_inputs()[0].name: noise(model, 2)})
    np.testing.assert_allclose(found, model(noise(model, 2)), atol=1e-4)


@pytest.mark.slow
def test_mixed_precision_metadata_and_overwriting(trained_toy, tmp_path):
    images = Preprocessing(16, resize="shortest", crop_fraction=0.875, mean=(0.4, 0.5, 0.6))
    model, path = trained_toy(preprocessing=images, dtype="mixed_bfloat16", depth=1), tmp_path / "new" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(b"an older file")
    session = check(model, write_onnx(model, str(path), TOY_NAMES), tolerance=0.05)
    assert model.compute_dtype != "float32"
    precise = trained_toy(depth=1)  # in which the file computes
    for ours, theirs in zip(precise.weights, model.weights):
        ours.assign(keras.ops.cast(theirs, "float32"))
    [found] = session.run(None, {"images": noise(model, 2)})
    np.testing.assert_allclose(found, precise(noise(model, 2)), atol=1e-4)
    metadata = session.get_modelmeta().custom_metadata_map
    assert Preprocessing(**json.loads(metadata["preprocessing"])) == images
    assert metadata["class_names"].split("\n") == TOY_NAMES and metadata["activation"] == "softmax"


@pytest.mark.slow
def test_unsupported_operations_raise(trained_toy, tmp_path, monkeypatch):
    model = trained_toy(depth=1)
    monkeypatch.setattr(model, "call", lambda images: tf.math.lbeta(tf.abs(model.features(images))[..., None]))
    (tmp_path / "model.onnx").write_text("precious")
    with pytest.raises(ValueError, match="Lgamma"):
        write_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_invalid_arguments_raise_before_any_work(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.Model, "export", lambda *a, **k: pytest.fail("exported"))
    model, path = toy(), tmp_path / "new" / "model.onnx"
    cases = [
        ((model, tmp_path / "model"), "Received: .*model"),
        ((model, path, ["a", "b"]), "5 classes. Received: 2 names"),
        ((toy(pooling="none"), path), r"\(batch, classes\)"),
        ((keras.Sequential(), path, ["a"]), "Received: a Sequential"),
        ((BiT(stages=(1,), width_factor=0.5, num_classes=5), path), r"resized\(224\)"),
    ]
    with pytest.raises(ValueError, match="Received: 'int8'"):
        write_onnx(model, path, dtype="int8")
    for mode, dtype in (("float8", "float32"), ("int8", "float16")):
        quantized = toy(depth=1)
        quantized.head.quantize(mode)
        with pytest.raises(ValueError, match=f"with {mode} layers and dtype='{dtype}'"):
            write_onnx(quantized, path, dtype=dtype)
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            write_onnx(*arguments)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="2.35 GiB"):
        patch.setattr(type(model), "count_params", lambda self: 632_045_800)
        write_onnx(model, path)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="Received: torch"):
        patch.setattr(keras.backend, "backend", lambda: "torch")
        write_onnx(model, path)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"vit-for-keras\[onnx\]"):
        write_onnx(model, path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("dtype,tolerance", [("float32", 1e-5), ("float16", 0.01)])
def test_pixels_and_half_precision(trained_toy, tmp_path, dtype, tolerance):
    images = Preprocessing(16, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), crop_fraction=0.5)
    model = trained_toy(depth=1, preprocessing=images)
    pixels = np.random.default_rng(2).integers(0, 256, (3, 16, 16, 3), "uint8")
    expected = model.predict((pixels / 255 - images.mean) / images.std, verbose=0)
    path = write_onnx(model, tmp_path / f"{dtype}.onnx", dtype=dtype, pixels=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [image], [out] = session.get_inputs(), session.get_outputs()
    assert (image.type, image.shape) == ("tensor(uint8)", ["batch", 16, 16, 3])
    assert (out.name, out.type) == ("logits", "tensor(float)")
    np.testing.assert_allclose(session.run(None, {"images": pixels})[0], expected, atol=tolerance * np.ptp(expected))
    [row] = check_parity(model, {"onnx": path}, pixels, expected.argmax(-1))
    assert row.agreement == 1 and row.max_difference < tolerance
    large = {tensor.data_type for tensor in onnx.load(path).graph.initializer if np.prod(tensor.dims) > 100}
    assert large == {onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}


@pytest.mark.slow
def test_hybrid_in_half_precision(tmp_path):
    """In onnx's evaluator, which rounds every result to float16, as a GPU does; onnxruntime on a CPU does not."""
    model = keras_vit.load("cifar10/R6_Ti_4")
    images = model.preprocess(np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype("float32"))
    path = write_onnx(model, tmp_path / "hybrid.onnx", dtype="float16")
    (logits,) = ReferenceEvaluator(str(path)).run(None, {"images": images.numpy()})
    np.testing.assert_allclose(logits, model(images), atol=0.05)


def test_constants_of_other_networks_are_no_inputs(tmp_path):
    """TensorFlow hands the mean and variance of `Normalization`, as in EfficientNet, to the graph as inputs."""
    inputs = keras.Input((8, 8, 3))
    normalized = keras.layers.Normalization(mean=(1.0, 2.0, 3.0), variance=(4.0, 5.0, 6.0))(inputs)
    model = keras_vit.ImageClassifier(keras.Model(inputs, normalized), num_classes=3, preprocessing="pixels")
    model.head.kernel.assign(np.random.default_rng(0).normal(size=(3, 3)))
    images = np.random.default_rng(1).uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    session = onnxruntime.InferenceSession(str(write_onnx(model, tmp_path / "x.onnx")))
    means = ((images - (1, 2, 3)) / np.sqrt((4, 5, 6))).mean(axis=(1, 2))
    (logits,) = session.run(None, {"images": images})
    np.testing.assert_allclose(logits, means @ np.asarray(model.head.kernel), rtol=1e-4)
