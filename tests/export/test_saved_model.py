"""SavedModels compute what Keras computes, in TensorFlow alone too."""

import json
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from loaded_signatures import load
from scenes import encoded, scene

from keras_vit import AxialResNet, BiT, Preprocessing, VisionTransformer, attention_rollout
from keras_vit.export import write_saved_model
from keras_vit.export.checks import checked_class_names

pytestmark = pytest.mark.slow

NAMES = ["tench", "great white shark", "crane", "crane", "jay, Pica"]
CLASSIFIER = {"classify", "serving_default", "logits", "features", "attention", "serve_bytes", "serve_uint8"}
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
    np.savez(found, class_names=tf.io.read_file(loaded.class_names.asset_path).numpy().decode().splitlines(), **outputs)
"""


def noise(model, count=3):
    return np.random.default_rng(1).uniform(-1, 1, (count, *model.image_size, 3)).astype("float32")


def randomized(model):
    """Random weights: a zero head would hide differences before it."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
    return model


def test_sigmoids(trained_toy, tmp_path):
    model = trained_toy(multi_label=True, depth=1)
    signatures, images = load(write_saved_model(model, tmp_path / "model")), noise(model)
    expected = tf.sigmoid(model(images))
    for name in ("classify", "serving_default"):
        np.testing.assert_allclose(signatures[name](images)["probabilities"], expected, atol=1e-5)
    pixels = np.zeros((1, 16, 16, 3), "uint8")
    found = signatures["serve_uint8"](pixels)
    np.testing.assert_allclose(found["probabilities"], tf.sigmoid(model(model.preprocess(pixels))), atol=1e-5)
    assert found["top_probabilities"].sum() > 1.1


def test_signatures_equal_keras_for_any_batch_size(artifacts, classifier, inputs):
    signatures = load(artifacts["saved_model"])
    assert set(signatures) == CLASSIFIER
    for count in (1, 5):
        batch = inputs[0][:count]
        logits = classifier(batch)
        for name in ("classify", "serving_default"):
            outputs = signatures[name](batch)
            assert set(outputs) == {"probabilities"}
            np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(logits), atol=1e-5)
        np.testing.assert_allclose(signatures["logits"](batch)["logits"], logits, atol=1e-5)
        np.testing.assert_allclose(signatures["features"](batch)["features"], classifier.features(batch), atol=1e-5)
        attention = signatures["attention"](batch)["attention"]
        assert attention.shape == (count, 16, 16) and attention.std() > 0.01
        np.testing.assert_allclose(attention, attention_rollout(classifier, batch), atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"pooling": "gap", "register_tokens": 2, "image_size": (8, 16), "gelu": "erf", "depth": 1},
        {"distillation": True, "position_embedding": "relative", "depth": 1},
        {"pooling": "map", "axial": True, "image_size": 32, "patch_size": 16, "resnet_stages": (1,), "depth": 1},
    ],
)
def test_vit_options(trained_toy, tmp_path, changes):
    model = trained_toy(**changes)
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER
    np.testing.assert_allclose(signatures["logits"](inputs)["logits"], model(inputs), rtol=1e-5, atol=1e-5)
    features = signatures["features"](inputs)["features"]
    np.testing.assert_allclose(features, model.features(inputs), rtol=1e-5, atol=1e-5)
    attention = signatures["attention"](inputs)["attention"]
    np.testing.assert_allclose(attention, attention_rollout(model, inputs), atol=1e-5)


@pytest.mark.parametrize("kind", [BiT, AxialResNet])
def test_models_without_attention(tmp_path, kind):
    options = {BiT: {"stages": (1,), "width_factor": 0.5}, AxialResNet: {"stages": (1,)}}[kind]
    model = randomized(kind(image_size=32, num_classes=5, **options))
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER - {"attention"}
    np.testing.assert_allclose(signatures["logits"](inputs)["logits"], model(inputs), rtol=1e-5, atol=1e-5)
    image = np.asarray(scene(1))
    expected = tf.nn.softmax(model(model.preprocess(image)))
    found = signatures["serve_bytes"]([encoded(scene(1), "PNG")])["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_models_without_a_head_return_features(trained_toy, tmp_path):
    model = trained_toy(num_classes=0, depth=1)
    signatures, inputs = load(write_saved_model(model, tmp_path / "pooled")), noise(model)
    assert set(signatures) == CLASSIFIER - {"classify", "logits"}
    for name in ("serving_default", "features"):
        np.testing.assert_allclose(signatures[name](inputs)["features"], model.features(inputs), atol=1e-5)
    pixels = np.asarray(scene(2))[None]
    expected = model.features(model.preprocess(pixels))
    for name, value in (("serve_uint8", pixels), ("serve_bytes", [encoded(scene(2), "PNG")])):
        outputs = signatures[name](value)
        assert set(outputs) == {"features"}
        np.testing.assert_allclose(outputs["features"], expected, atol=1e-5)

    model = trained_toy(num_classes=0, pooling="none", depth=1)
    tokens = load(write_saved_model(model, tmp_path / "tokens"))["serving_default"](inputs)["features"]
    assert tokens.shape == (3, 17, 12)
    np.testing.assert_allclose(tokens, model(inputs), atol=1e-5)


def test_runs_with_tensorflow_alone(trained_toy, tmp_path):
    model = trained_toy(depth=1, dropout=0.1, preprocessing=Preprocessing(16, resize="shortest", crop_fraction=0.9))
    folder = write_saved_model(model, tmp_path / "model", NAMES)
    inputs, pixels = noise(model), np.stack([np.asarray(scene(seed, (30, 20))) for seed in (0, 1)])
    file = np.frombuffer(encoded(scene(4), "PNG"), "uint8")
    np.savez(tmp_path / "given.npz", images=inputs, pixels=pixels, image_bytes=file)
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(TENSORFLOW_ONLY),
        folder,
        tmp_path / "given.npz",
        tmp_path / "found.npz",
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr

    with np.load(tmp_path / "found.npz") as found:
        assert list(found["class_names"]) == NAMES
        classify = tf.nn.softmax(model(inputs))
        served = {"serve_uint8": model.preprocess(pixels), "serve_bytes": model.preprocess(np.asarray(scene(4)))}
        expected = {
            "classify/probabilities": classify,
            "serving_default/probabilities": classify,
            "logits/logits": model(inputs),
            "features/features": model.features(inputs),
            "attention/attention": attention_rollout(model, inputs),
        }
        for name, ready in served.items():
            probabilities = tf.nn.softmax(model(ready))
            best, order = tf.math.top_k(probabilities, 5)
            expected |= {f"{name}/probabilities": probabilities, f"{name}/top_probabilities": best}
            np.testing.assert_array_equal(found[f"{name}/top_classes"], order)
            assert found[f"{name}/top_class_names"].astype(str).tolist() == np.array(NAMES)[order].tolist()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)
        top = {f"{name}/top_{kind}" for name in served for kind in ("classes", "class_names")}
        assert set(found) == set(expected) | top | {"class_names"}


def test_mixed_precision_returns_float32(trained_toy, tmp_path):
    model = trained_toy(dtype="mixed_bfloat16", depth=1)
    signatures, inputs = load(write_saved_model(model, tmp_path / "model")), noise(model)
    assert set(signatures) == CLASSIFIER
    for name in CLASSIFIER - {"serve_bytes"}:
        outputs = signatures[name](np.asarray(scene(0))[None] if name == "serve_uint8" else inputs)
        assert all(values.dtype == np.float32 for key, values in outputs.items() if key != "top_classes"), name
    expected = tf.nn.softmax(tf.cast(model(inputs), tf.float32))
    np.testing.assert_allclose(signatures["classify"](inputs)["probabilities"], expected, atol=1e-2)


def test_loads_as_a_keras_layer(classifier, artifacts, inputs):
    layer = keras.layers.TFSMLayer(str(artifacts["saved_model"]), call_endpoint="logits")
    np.testing.assert_allclose(layer(inputs[0][:2])["logits"], classifier(inputs[0][:2]), atol=1e-5)


def test_assets(toy, tmp_path, artifacts):
    preprocessing = Preprocessing((16, 16), resize="shortest", crop_fraction=0.875, mean=(0.4, 0.5, 0.6))
    folder = write_saved_model(toy(preprocessing=preprocessing, depth=1), tmp_path / "1", NAMES)
    for place in ("assets", "assets.extra"):
        assert Preprocessing(**json.loads((folder / place / "preprocessing.json").read_text())) == preprocessing
    assert (folder / "assets" / "labels.txt").read_text("utf-8").splitlines() == NAMES
    moved = folder.rename(tmp_path / "2")  # assets are found in the new place
    loaded = tf.saved_model.load(str(moved))
    assert loaded.class_names.asset_path.numpy().decode() == str(moved / "assets" / "labels.txt")
    assert loaded.preprocessing.asset_path.numpy().decode() == str(moved / "assets" / "preprocessing.json")

    assert not (artifacts["saved_model"] / "assets" / "labels.txt").exists()  # written without class names


def test_wordnet_ids_are_dropped():
    assert checked_class_names([("n01440764", "tench"), ("n01443537", "goldfish")], 2) == ["tench", "goldfish"]


@pytest.mark.parametrize(
    "class_names,message",
    [
        (NAMES[:4], "each of the 5 classes. Received: 4 names"),
        ([*NAMES, "more"], "5 classes. Received: 6 names"),
        ("abcde", "Received: a str, 'abcde'"),
        ([*NAMES[:4], "two\nlines"], r"Received: 'two\\nlines' for class 4"),
        ([" ", *NAMES[:4]], "one line of text. Received: ' ' for class 0"),
        ([0, 1, 2, 3, 4], "Received: 0 for class 0"),
    ],
)
def test_invalid_class_names_raise_before_tracing(toy, tmp_path, monkeypatch, class_names, message):
    monkeypatch.setattr(VisionTransformer, "call", lambda *a, **k: pytest.fail("traced"))
    with pytest.raises(ValueError, match=message):
        write_saved_model(toy(), tmp_path / "model", class_names)
    assert not list(tmp_path.iterdir())


def test_existing_folder_is_not_overwritten(toy, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").write_text("x")
    with pytest.raises(ValueError, match="already exists"):
        write_saved_model(toy(), tmp_path / "model")
    assert (tmp_path / "model" / "precious").read_text() == "x"


def test_failed_export_leaves_nothing(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.saved_model, "save", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_saved_model(toy(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_bit_without_image_size_raises(tmp_path):
    model = BiT(stages=(1,), width_factor=0.5, num_classes=5)
    with pytest.raises(ValueError, match=r"model.resized\(224\)"):
        write_saved_model(model, tmp_path / "model")


def test_head_on_tokens_raises(toy, tmp_path):
    with pytest.raises(ValueError, match=r"returns \(\w+, 17, 5\).*model.with_head\(0\)"):
        write_saved_model(toy(pooling="none"), tmp_path / "model")


def test_other_backends_raise(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Received: jax.*KERAS_BACKEND=tensorflow"):
        write_saved_model(toy(), tmp_path / "model")
