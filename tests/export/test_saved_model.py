"""SavedModels compute what Keras computes, in TensorFlow alone too."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from loaded_signatures import load
from randomize import randomize
from scenes import encoded, scene

from keras_vit import AxialResNet, BiT, Preprocessing, attention_rollout
from keras_vit.export import write_saved_model

pytestmark = pytest.mark.slow

NAMES = ["tench", "great white shark", "crane", "crane", "jay, Pica"]
CLASSIFIER = {"classify", "serving_default", "logits", "features", "attention", "serve_bytes", "serve_uint8"}
AXIAL = {"pooling": "map", "axial": True, "image_size": 32, "patch_size": 16, "resnet_stages": (1,)}
# Runs every signature in a process that can import neither keras_vit nor Keras.
TENSORFLOW_ONLY = """
import importlib.util, sys

class Hide:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in ("keras_vit", "keras", "keras_hub", "tf_keras")
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Hide, sys.meta_path)
assert not importlib.util.find_spec("keras") and not importlib.util.find_spec("keras_vit")
import numpy as np
import tensorflow as tf

folder, given, found = sys.argv[1:]
loaded, inputs = tf.saved_model.load(folder), np.load(given)
outputs = {}
for name, signature in loaded.signatures.items():
    kind = {"serve_bytes": "image_bytes", "serve_uint8": "pixels"}.get(name, "images")
    value = [inputs["image_bytes"].tobytes()] if kind == "image_bytes" else inputs[kind]
    (argument,) = signature.structured_input_signature[1]
    for output, tensor in signature(**{argument: tf.constant(value)}).items():
        outputs[f"{name}/{output}"] = tensor.numpy().astype("S" if tensor.dtype == tf.string else None)
assert not {"keras_vit", "keras"} & {name.partition(".")[0] for name in sys.modules}
paths = [asset.asset_path.numpy().decode() for asset in (loaded.class_names, loaded.preprocessing)]
np.savez(found, class_names=tf.io.read_file(paths[0]).numpy().decode().splitlines(), asset_paths=paths, **outputs)
"""


def noise(model, count=3):
    return np.random.default_rng(1).uniform(-1, 1, (count, *model.image_size, 3)).astype("float32")


@pytest.mark.parametrize(
    "changes",
    [
        {"pooling": "gap", "register_tokens": 2, "image_size": (8, 16), "gelu": "erf"},
        {"distillation": True, "position_embedding": "relative", "multi_label": True},
        pytest.param(AXIAL, marks=pytest.mark.extended),
    ],
)
def test_vit_options(trained_toy, tmp_path, changes):
    model = trained_toy(**changes, depth=1)
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for name in ("logits", "attention"):
        graph = loaded.signatures[name].graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        # The converters of TensorFlow.js and Core ML lack them.
        assert not {"Erfc", "MatrixDiagV3", "ScaleAndTranslate"} & {node.op for node in nodes}
    logits = model(inputs)
    np.testing.assert_allclose(signatures["logits"](inputs)["logits"], logits, rtol=1e-5, atol=1e-5)
    features = signatures["features"](inputs)["features"]
    np.testing.assert_allclose(features, model.features(inputs), rtol=1e-5, atol=1e-5)
    attention = signatures["attention"](inputs)["attention"]
    np.testing.assert_allclose(attention, attention_rollout(model, inputs), atol=1e-5)
    activation = tf.sigmoid if model.multi_label else tf.nn.softmax
    for name in ("classify", "serving_default"):
        np.testing.assert_allclose(signatures[name](inputs)["probabilities"], activation(logits), atol=1e-5)
    pixels = np.zeros((1, *model.image_size, 3), "uint8")
    found = signatures["serve_uint8"](pixels)
    np.testing.assert_allclose(found["probabilities"], activation(model(model.preprocess(pixels))), atol=1e-5)
    assert (found["top_probabilities"].sum() > 1.1) == model.multi_label


@pytest.mark.parametrize("kind", [AxialResNet, pytest.param(BiT, marks=pytest.mark.extended)])
def test_models_without_attention(tmp_path, kind):
    options = {BiT: {"stages": (1,), "width_factor": 0.5}, AxialResNet: {"stages": (1,)}}[kind]
    model = randomize(kind(image_size=32, num_classes=5, **options))
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER - {"attention"}
    np.testing.assert_allclose(signatures["logits"](inputs)["logits"], model(inputs), rtol=1e-5, atol=1e-5)
    expected = tf.nn.softmax(model(model.preprocess(np.asarray(scene(1)))))
    content = encoded(scene(1), "PNG")
    found = signatures["serve_bytes"]([content])["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    animated = encoded(scene(1), "WEBP", save_all=True, append_images=[scene(2)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"animated WebP .*at the index\] \[1\]"):
        signatures["serve_bytes"]([content, animated])


@pytest.mark.parametrize("pooling", ["token", pytest.param("none", marks=pytest.mark.extended)])
def test_models_without_a_head_return_features(trained_toy, tmp_path, pooling):
    model = trained_toy(num_classes=0, depth=1, pooling=pooling)
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER - {"classify", "logits"}
    expected = model.features(inputs) if pooling == "token" else model(inputs)
    assert expected.shape == ((3, 12) if pooling == "token" else (3, 17, 12))
    for name in ("serving_default", "features"):
        np.testing.assert_allclose(signatures[name](inputs)["features"], expected, atol=1e-5)
    pixels = np.asarray(scene(2))[None]
    expected = model.features(model.preprocess(pixels)) if pooling == "token" else model(model.preprocess(pixels))
    for name, value in (("serve_uint8", pixels), ("serve_bytes", [encoded(scene(2), "PNG")])):
        outputs = signatures[name](value)
        assert set(outputs) == {"features"}
        np.testing.assert_allclose(outputs["features"], expected, atol=1e-5)


def test_assets_and_tensorflow_alone(trained_toy, tmp_path, artifacts):
    preprocessing = Preprocessing(16, resize="shortest", crop_fraction=0.9, mean=(0.4, 0.5, 0.6))
    model = trained_toy(depth=1, dropout=0.1, preprocessing=preprocessing)
    folder = write_saved_model(model, tmp_path / "1", NAMES).rename(tmp_path / "2")  # assets are found in the new place
    for place in ("assets", "assets.extra"):
        assert Preprocessing(**json.loads((folder / place / "preprocessing.json").read_text())) == preprocessing
    assert not (artifacts["saved_model"] / "assets" / "labels.txt").exists()  # written without class names

    inputs, pixels = noise(model), np.stack([np.asarray(scene(seed, (30, 20))) for seed in (0, 1)])
    file = np.frombuffer(encoded(scene(4), "PNG"), "uint8")
    np.savez(tmp_path / "given.npz", images=inputs, pixels=pixels, image_bytes=file)
    command = [sys.executable, "-c", TENSORFLOW_ONLY, folder, tmp_path / "given.npz", tmp_path / "found.npz"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr

    with np.load(tmp_path / "found.npz") as found:
        assert found["asset_paths"].tolist() == [
            str(folder / "assets" / x) for x in ("labels.txt", "preprocessing.json")
        ]
        assert list(found["class_names"]) == NAMES
        classify = tf.nn.softmax(model(inputs))
        expected = {
            "classify/probabilities": classify,
            "serving_default/probabilities": classify,
            "logits/logits": model(inputs),
            "features/features": model.features(inputs),
            "attention/attention": attention_rollout(model, inputs),
        }
        top = set()
        for name, images in (("serve_uint8", pixels), ("serve_bytes", np.asarray(scene(4)))):
            probabilities = tf.nn.softmax(model(model.preprocess(images)))
            best, order = tf.math.top_k(probabilities, 5)
            expected |= {f"{name}/probabilities": probabilities, f"{name}/top_probabilities": best}
            np.testing.assert_array_equal(found[f"{name}/top_classes"], order)
            assert found[f"{name}/top_class_names"].astype(str).tolist() == np.array(NAMES)[order].tolist()
            top |= {f"{name}/top_classes", f"{name}/top_class_names"}
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)
        assert set(found) == set(expected) | top | {"class_names", "asset_paths"}


def test_mixed_precision_returns_float32(trained_toy, tmp_path):
    model = trained_toy(dtype="mixed_bfloat16", depth=1)
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    for name in CLASSIFIER - {"serve_bytes"}:
        outputs = signatures[name](np.asarray(scene(0))[None] if name == "serve_uint8" else inputs)
        assert all(values.dtype == np.float32 for key, values in outputs.items() if key != "top_classes"), name
    expected = tf.nn.softmax(tf.cast(model(inputs), tf.float32))
    np.testing.assert_allclose(signatures["classify"](inputs)["probabilities"], expected, atol=1e-2)


def test_existing_folder_is_not_overwritten(toy, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").write_text("x")
    with pytest.raises(ValueError, match="already exists"):
        write_saved_model(toy(), tmp_path / "model")
    assert (tmp_path / "model" / "precious").read_text() == "x"
    (tmp_path / "empty").mkdir()
    signatures = load(write_saved_model(toy(depth=1), tmp_path / "empty", default_signature="serve_bytes"))
    file = [encoded(scene(1), "PNG")]
    found, expected = (signatures[name](file)["probabilities"] for name in ("serving_default", "serve_bytes"))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="serve_uint8.*Received: 'bytes'"):
        write_saved_model(toy(depth=1), tmp_path / "other", default_signature="bytes")


def test_failed_export_leaves_nothing(toy, tmp_path, monkeypatch):
    cases = [(BiT(stages=(1,), width_factor=0.5, num_classes=5), "image_size|resized"), (toy(pooling="none"), "17, 5")]
    for model, message in cases:
        with pytest.raises(ValueError, match=message):
            write_saved_model(model, tmp_path / "model")
    monkeypatch.setattr(tf.saved_model, "save", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_saved_model(toy(depth=1), tmp_path / "model")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Received: jax"):
        write_saved_model(toy(depth=1), tmp_path / "model")
    assert not list(tmp_path.iterdir())
