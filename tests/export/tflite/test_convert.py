"""TFLite files in LiteRT's interpreter compute what Keras computes."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from keras_vit.export import FORMATS, read_description, write_tflite
from keras_vit.export.audit import audit
from keras_vit.export.tflite.graph import read_graph, run_tflite
from keras_vit.export.tflite.private_apis import operation_details
from keras_vit.inspect.attention import rollout

pytestmark = pytest.mark.slow

TOLERANCE = {"float32": 1e-4, "float16": 5e-3, "dynamic-int8": 0.1, "int4-weights": 1.0}
TOLERANCE |= {"mixed-int8": 0.2, "int8": 0.3, "int16x8": 0.05}
extended = functools.partial(pytest.param, marks=pytest.mark.extended)
SMALL = {"image_size": 16, "patch_size": 4, "depth": 2, "width": 32, "mlp_dim": 64, "num_heads": 2, "num_classes": 4}
BIT = functools.partial(keras_vit.BiT, stages=(1,), width_factor=0.5, image_size=32, num_classes=3)
HYBRID = {**SMALL, "patch_size": 16, "resnet_stages": (1,), "image_size": 64}


@pytest.fixture
def floats(tmp_path):
    """Randomizes a model, writes its float32 file and runs it; returns inputs, outputs and path."""

    def run(model, *signatures, batch_size=1):
        random = np.random.default_rng(0)
        for weight in model.trainable_weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        images = random.integers(0, 256, (2, *model.image_size, 3)).astype("float32")
        (path,) = write_tflite(model, tmp_path, ["float32"], signatures=signatures, batch_size=batch_size).values()
        inputs = model.preprocessing(images)
        return inputs, [run_tflite(path, images, signature)[0] for signature in signatures], path

    return run


@pytest.mark.parametrize("name", FORMATS)
def test_probabilities_equal_keras(artifacts, classifier, inputs, images, name):
    expected = tf.nn.softmax(classifier(images / 127.5 - 1)).numpy()
    probabilities, milliseconds = run_tflite(artifacts[name], images)
    assert np.abs(probabilities - expected).max() <= TOLERANCE[name]
    assert (probabilities.argmax(-1) == inputs[1]).mean() >= 0.95
    assert milliseconds.shape == (60,) and (milliseconds > 0).all()


@pytest.mark.parametrize("names", [["float32"], extended(FORMATS)])
def test_images_of_a_batch_have_the_outputs_of_single_images(artifacts, classifier, images, tmp_path, names):
    for name, path in write_tflite(classifier, tmp_path, names, images, batch_size=3).items():
        described = read_description(path)
        [tensor] = described.signatures["classify"].inputs
        assert tensor.shape == (3, 16, 16, 3) and described.mediapipe_problem
        single, _ = run_tflite(artifacts[name], images[:5])
        found, milliseconds = run_tflite(path, images[:5])
        # Sums of moments in another order round a few weights of int8 to the neighboring step.
        np.testing.assert_allclose(found, single, atol=4 / 256 if name == "int8" else 1e-4 if "int" in name else 1e-6)
        assert len(milliseconds) == 5
    assert names == FORMATS or not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings


@pytest.mark.parametrize(
    "options", [{"multi_label": True, "distillation": True}, extended({"num_classes": 21843, "width": 8})]
)
def test_sigmoids(floats, options):
    model = keras_vit.VisionTransformer(**{**SMALL, "depth": 1, **options})
    inputs, (probabilities,), path = floats(model, "classify")
    np.testing.assert_allclose(probabilities, tf.sigmoid(model(inputs)), atol=1e-5)
    assert probabilities.sum(axis=-1).min() > 1.1 and read_graph(path)[-1].name == "LOGISTIC"
    assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings
    assert "they do not add up to 1" in read_description(path).description.description


# An open batch would leave these in the graph, and accelerators do not support them.
UNSUPPORTED = {"SHAPE", "BROADCAST_TO", "PACK", "EINSUM", "GATHER", "STRIDED_SLICE"}


@pytest.mark.parametrize("name", FORMATS)
def test_operations_shapes_and_dtypes(artifacts, name):
    interpreter = Interpreter(model_path=str(artifacts[name]))
    interpreter.allocate_tensors()
    operations = {operation["op_name"] for operation in operation_details(interpreter)}
    assert operations >= {"FULLY_CONNECTED", "CONV_2D"} and not operations & {*UNSUPPORTED, "CUSTOM"}
    assert not [operation for operation in operations if operation.startswith("Flex")]
    for details in interpreter.get_tensor_details():
        assert (details["shape_signature"] > 0).all() and len(details["shape"]) <= 4
        assert name != "int8" or details["dtype"] != np.float32
    (image,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    dtype = np.uint8 if name == "int8" else np.float32
    assert (image["dtype"], out["dtype"]) == (dtype, dtype)
    assert name != "int8" or image["quantization"] == (1.0, 0)  # MediaPipe feeds unscaled pixels
    assert interpreter.get_signature_list() == {"classify": {"inputs": ["images"], "outputs": ["probabilities"]}}
    if name in ("float32", "mixed-int8", "int16x8"):  # normalizations are in float
        found = [operation.dtype for operation in read_graph(artifacts[name]) if operation.name == "RSQRT"]
        assert len(found) >= 5 and set(found) == {"float32"}


PREPARED = {"image_size": 16, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


@pytest.mark.parametrize(
    "options",
    [
        extended({"pooling": "gap", "class_token": False, "layer_scale": 0.3}),
        {
            "pooling": "map",
            "num_heads": 4,
            "qk_norm": True,
            "gelu": "erf",
            "register_tokens": 2,
            "pool_prefix_tokens": False,
        },
        {"position_embedding": "relative", "representation_size": 8, "preprocessing": PREPARED},
        extended({"distillation": True, "norm_after_pooling": False}),
        {"pooling": "gap", "norm_after_pooling": True, "register_tokens": 2, "dtype": "mixed_bfloat16"},
        extended({"axial": True}),
        extended({"norm_before_encoder": True, "gelu": "quick", "qk_norm": True}),  # CLIP's
        {"pooling": "token_and_gap", "swiglu": True, "layer_scale": 0.3},  # DINOv2's g/14 with a linear classifier
    ],
    ids=str,
)
def test_vit_options(floats, options):
    """Outputs equal Keras, and XNNPACK and GPU delegates support every operation."""
    model = keras_vit.VisionTransformer(**{**SMALL, "depth": 1, **options})
    inputs, (probabilities, embedding), path = floats(model, "classify", "embed")
    tolerance = 2e-2 if "dtype" in options else 1e-5
    np.testing.assert_allclose(probabilities, tf.nn.softmax(tf.cast(model(inputs), "float32")), atol=tolerance)
    scale = np.abs(embedding).max()
    np.testing.assert_allclose(embedding, tf.cast(model.features(inputs), "float32"), atol=tolerance * scale)
    assert list(Interpreter(model_path=str(path)).get_signature_list()) == ["classify", "embed"]
    if "axial" not in options and "position_embedding" not in options:
        assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings


@pytest.mark.parametrize("build", [BIT, extended(functools.partial(keras_vit.VisionTransformer, **HYBRID))])
def test_backbones(floats, build):
    """Group normalization has four axes: accelerators run every operation."""
    model = build()
    inputs, (probabilities,), path = floats(model, "classify")
    np.testing.assert_allclose(probabilities, tf.nn.softmax(model(inputs)), atol=1e-5)
    assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings


@pytest.mark.extended
@pytest.mark.parametrize(
    ("build", "scale", "name", "error"),
    [
        (BIT, 1, "mixed-int8", 0.05),
        (BIT, 1, "int16x8", 0.03),
        (functools.partial(keras_vit.VisionTransformer, **HYBRID), 0.3, "int16x8", 0.02),
    ],
)
def test_backbones_in_integers(build, scale, name, error, tmp_path):
    model = build()
    model.head.kernel.assign(scale * np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    images = np.random.default_rng(1).integers(0, 256, (20, *model.image_size, 3)).astype("float32")
    (path,) = write_tflite(model, tmp_path, [name], images).values()
    np.testing.assert_allclose(run_tflite(path, images)[0], tf.nn.softmax(model(images / 127.5 - 1)), atol=error)


@pytest.mark.extended
@pytest.mark.parametrize(("pooling", "patch_share"), [("token_and_gap", 0.5), ("gap", 1)])
def test_attention_map_is_the_rollout(floats, pooling, patch_share):
    model = keras_vit.VisionTransformer(**SMALL, pooling=pooling)
    inputs, (maps,), path = floats(model, "attention")
    expected = rollout(model.attention_maps(inputs), model.prefix_tokens, patch_share)
    np.testing.assert_allclose(maps, np.reshape(expected, (2, 4, 4)), atol=1e-5)
    assert path.name == "attention-float32.tflite"
    assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings


def test_several_signatures(classifier, artifacts, images, tmp_path):
    """They share weights, and the first is the default."""
    three = ["embed", "classify", "attention"]
    (path,) = write_tflite(classifier, tmp_path, ["float32"], signatures=three, class_names=list("abcd")).values()
    assert path.stat().st_size < 3 * artifacts["float32"].stat().st_size - 100_000  # two copies of half the weights
    interpreter, found = Interpreter(model_path=str(path)), read_description(path)
    assert set(interpreter.get_signature_list()) == set(three)
    assert next(iter(found.signatures)) == "embed" and found.description.class_names is None
    expected = rollout(classifier.attention_maps(images[:2] / 127.5 - 1), classifier.prefix_tokens)
    maps, _ = run_tflite(path, images[:2], "attention")
    np.testing.assert_allclose(maps, np.reshape(expected, (2, 4, 4)), atol=1e-5)
    assert path.name == "embed-float32.tflite" and tuple(interpreter.get_output_details()[0]["shape"]) == (1, 32)


def test_invalid_arguments_raise_before_conversion(toy, tmp_path, images, monkeypatch):
    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", lambda *a, **k: pytest.fail("converted"))
    model, headless, bit = toy(depth=1), toy(num_classes=0), BIT(image_size=None)
    mixed, embed = {"formats": ["mixed-int8"]}, {"signatures": ["embed"]}
    cases = [
        (model, {"formats": "int8"}, "the string 'int8'"),
        (model, {"signatures": "int8"}, "the string 'int8'"),
        (model, {"formats": ["int4"]}, "Received: .'int4'"),
        (model, {"formats": ["int8"]}, "at least 20 images"),
        (model, {"formats": ["int8"], "calibration": images[:3]}, "at least 20 images"),
        (model, {"formats": ["int8"], "calibration": np.zeros((50, 8, 8, 3), "float32")}, "16, 16, 3"),
        (model, {**mixed, "calibration": images / 127.5 - 1}, "Received: values between"),
        (model, {**mixed, "calibration": 257 * images}, "Received: values between"),  # 16-bit pixels
        (model, {**mixed, "calibration": np.where(images > 0, images, np.nan)}, "Received: values between"),
        (headless, {}, "has no head"),
        (model, {"batch_size": 0}, "positive integer. Received: 0"),
        (model, {**mixed, "calibration": images, "signatures": ("classify", "embed")}, "one signature"),
        (model, {"class_names": ["a", "b"]}, "5 classes. Received: 2 names"),
        (headless, {**embed, "class_names": ["a"]}, "0 classes. Received: 1 names"),
        (toy(pooling="none", num_classes=0), embed, "pooling='token'"),
        (bit, {}, r"resized\(224\)"),
        (bit, {"formats": ["int8"], "calibration": images}, r"resized\(224\)"),
        ("runs/model.keras", {}, "Received: a str"),
        (keras.Sequential(), {}, "Received: a Sequential"),
    ]
    for wrong, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            write_tflite(wrong, tmp_path / "new", **{"formats": ["float32"], **arguments})
    assert not list(tmp_path.iterdir())
