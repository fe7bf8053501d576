"""TFLite files in LiteRT's interpreter compute what Keras computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import keras_vit
from keras_vit.export import FORMATS, read_description, write_tflite
from keras_vit.export.audit import audit
from keras_vit.export.private_apis import operation_details
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.inspect.rollout import rollout

pytestmark = pytest.mark.slow

TOLERANCE = {"float32": 1e-4, "float16": 5e-3, "dynamic-int8": 0.1, "int4-weights": 1.0}
TOLERANCE |= {"mixed-int8": 0.2, "int8": 0.3, "int16x8": 0.05}
SMALL = {"image_size": 16, "patch_size": 4, "depth": 2, "width": 32, "mlp_dim": 64, "num_heads": 2, "num_classes": 4}


@pytest.fixture
def floats(tmp_path):
    """Randomizes a model, writes its float32 file and runs it; returns inputs, outputs and path."""

    def run(model, *signatures):
        random = np.random.default_rng(0)
        for weight in model.trainable_weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        images = random.integers(0, 256, (2, *model.image_size, 3)).astype("float32")
        (path,) = write_tflite(model, tmp_path, ["float32"], signatures=signatures).values()
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


def test_equalization_reduces_the_error(classifier, images, tmp_path):
    """Keys that are 30 times as wide in one channel, and queries that are as much narrower."""
    spoiled = type(classifier).from_config(classifier.get_config())
    spoiled.set_weights(classifier.get_weights())
    factors = np.ones(96)
    factors[[3, 32 + 3]] = 1 / 30, 30
    for block in spoiled.encoder.blocks:
        for weight in (block.attention.qkv.kernel, block.attention.qkv.bias):
            weight.assign(weight.numpy() * factors)
    expected = tf.nn.softmax(classifier(images / 127.5 - 1)).numpy()
    errors = []
    for equalize in (True, False):
        (path,) = write_tflite(spoiled, tmp_path, ["mixed-int8"], images, equalize=equalize).values()
        errors.append(np.abs(run_tflite(path, images)[0] - expected).mean())
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("options", [{"multi_label": True, "distillation": True}, {"num_classes": 21843, "width": 8}])
def test_sigmoids(floats, options):
    model = keras_vit.VisionTransformer(**{**SMALL, "depth": 1, **options})
    inputs, (probabilities,), path = floats(model, "classify")
    np.testing.assert_allclose(probabilities, tf.sigmoid(model(inputs)), atol=1e-5)
    assert probabilities.sum(axis=-1).min() > 1.1 and read_graph(path)[-1].name == "LOGISTIC"
    assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings
    assert "they do not add up to 1" in read_description(path).description.description


@pytest.mark.parametrize("name", FORMATS)
def test_only_builtin_operations_and_static_shapes(artifacts, name):
    interpreter = Interpreter(model_path=str(artifacts[name]))
    interpreter.allocate_tensors()
    operations = {operation["op_name"] for operation in operation_details(interpreter)}
    assert "FULLY_CONNECTED" in operations and "CONV_2D" in operations
    assert not [operation for operation in operations if operation.startswith("Flex") or operation == "CUSTOM"]
    # An open batch would leave these in the graph, and accelerators do not support them.
    unsupported = {"SHAPE", "BROADCAST_TO", "PACK", "EINSUM", "GATHER", "STRIDED_SLICE"}
    assert not operations & unsupported
    for details in interpreter.get_tensor_details():
        assert (details["shape_signature"] > 0).all() and len(details["shape"]) <= 4


@pytest.mark.parametrize("name", ["float32", "mixed-int8", "int16x8"])
def test_normalizations_are_in_float(artifacts, name):
    found = [operation.dtype for operation in read_graph(artifacts[name]) if operation.name == "RSQRT"]
    assert len(found) >= 5 and set(found) == {"float32"}


def test_dtypes_of_input_and_output(artifacts):
    for name in FORMATS:
        interpreter = Interpreter(model_path=str(artifacts[name]))
        (image,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
        dtype = np.uint8 if name == "int8" else np.float32
        assert (image["dtype"], out["dtype"]) == (dtype, dtype)
        assert interpreter.get_signature_list() == {"classify": {"inputs": ["images"], "outputs": ["probabilities"]}}
        if name == "int8":  # MediaPipe feeds unscaled pixels
            assert image["quantization"] == (1.0, 0)


def test_int8_has_no_float_tensors(artifacts):
    interpreter = Interpreter(model_path=str(artifacts["int8"]))
    interpreter.allocate_tensors()
    floats = [details["name"] for details in interpreter.get_tensor_details() if details["dtype"] == np.float32]
    assert not floats


def test_file_sizes_by_format(artifacts):
    sizes = {name: artifacts[name].stat().st_size for name in FORMATS}
    assert sizes["float16"] < 0.9 * sizes["float32"]
    assert sizes["int4-weights"] < sizes["dynamic-int8"] < sizes["float16"]


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "gap", "class_token": False, "layer_scale": 0.3},
        {"pooling": "map", "num_heads": 4, "qk_norm": True, "gelu": "erf"},
        {
            "position_embedding": "relative",
            "representation_size": 8,
            "preprocessing": {"image_size": 16, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
        },
        {"distillation": True, "norm_after_pooling": False},
        {"pooling": "gap", "norm_after_pooling": True, "register_tokens": 2, "dtype": "mixed_bfloat16"},
        {"axial": True},
        {"norm_before_encoder": True, "gelu": "quick", "qk_norm": True},  # CLIP's
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


def test_bit(floats):
    model = keras_vit.BiT(stages=(1, 1), image_size=32, num_classes=3)
    inputs, (probabilities,), _ = floats(model, "classify")
    np.testing.assert_allclose(probabilities, tf.nn.softmax(model(inputs)), atol=1e-5)


@pytest.mark.parametrize("name,error", [("mixed-int8", 0.05), ("int16x8", 0.03)])
def test_bit_in_integers(name, error, tmp_path):
    model = keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=32, num_classes=3)
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    images = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 3)).astype("float32")
    (path,) = write_tflite(model, tmp_path, [name], images).values()
    np.testing.assert_allclose(run_tflite(path, images)[0], tf.nn.softmax(model(images / 127.5 - 1)), atol=error)


def test_hybrid_in_16_bits(tmp_path):
    model = keras_vit.VisionTransformer(**{**SMALL, "patch_size": 16, "resnet_stages": (1,), "image_size": 64})
    model.head.kernel.assign(0.3 * np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    images = np.random.default_rng(1).integers(0, 256, (20, 64, 64, 3)).astype("float32")
    (path,) = write_tflite(model, tmp_path, ["int16x8"], images).values()
    np.testing.assert_allclose(run_tflite(path, images)[0], tf.nn.softmax(model(images / 127.5 - 1)), atol=0.02)


@pytest.mark.parametrize(("pooling", "patch_share"), [("token", 0), ("token_and_gap", 0.5), ("gap", 1)])
def test_attention_map_is_the_rollout(floats, pooling, patch_share):
    model = keras_vit.VisionTransformer(**{**SMALL, "pooling": pooling})
    inputs, (maps,), path = floats(model, "attention")
    expected = rollout(model.attention_maps(inputs), model.prefix_tokens, patch_share)
    np.testing.assert_allclose(maps, np.reshape(expected, (2, 4, 4)), atol=1e-5)
    assert path.name == "attention-float32.tflite"
    assert not audit(path, ["cpu-xnnpack", "gpu", "litert2"]).findings


def test_signatures_share_weights(classifier, artifacts, tmp_path):
    one = artifacts["dynamic-int8"]
    three = ("classify", "embed", "attention")
    all_three = write_tflite(classifier, tmp_path / "three", ["dynamic-int8"], signatures=three)["dynamic-int8"]
    weights = 20_000  # about 17,000 bytes, and scales
    assert all_three.stat().st_size < 3 * one.stat().st_size - weights
    assert set(Interpreter(model_path=str(all_three)).get_signature_list()) == set(three)


@pytest.mark.parametrize("signatures", [("embed", "attention"), ("embed", "classify")])
def test_first_signature_is_the_default(classifier, tmp_path, signatures):
    (path,) = write_tflite(classifier, tmp_path, ["float32"], signatures=signatures, class_names=list("abcd")).values()
    found = read_description(path)
    assert next(iter(found.signatures)) == "embed" and found.description.class_names is None
    (out,) = Interpreter(model_path=str(path)).get_output_details()
    assert path.name == "embed-float32.tflite" and tuple(out["shape"]) == (1, 32)


def test_invalid_arguments_raise_before_conversion(toy, tmp_path, images, monkeypatch):
    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", lambda *a, **k: pytest.fail("converted"))
    for name in ("formats", "signatures"):
        with pytest.raises(ValueError, match=f"`{name}` must be a list. Received: the string 'int8'. Pass {name}="):
            write_tflite(toy(), tmp_path, **{name: "int8"})
    with pytest.raises(ValueError, match="float32, float16, dynamic-int8, .*. Received: \\['int4'\\]"):
        write_tflite(toy(), tmp_path, ["int4"])
    for calibration in (None, images[:3], np.zeros((50, 8, 8, 3), "float32")):
        with pytest.raises(ValueError, match=r"at least 20 images \(n, 16, 16, 3\)"):
            write_tflite(toy(), tmp_path, ["int8"], calibration)
    for wrong in (images / 127.5 - 1, 257 * images, np.where(images > 0, images, np.nan)):  # 257: 16-bit pixels
        with pytest.raises(ValueError, match=r"pixels in \[0, 255\], not yet scaled.* Received: values between"):
            write_tflite(toy(), tmp_path, ["mixed-int8"], wrong)
    with pytest.raises(ValueError, match="has no head to classify with. Pass signatures=.'embed',"):
        write_tflite(toy(num_classes=0), tmp_path)
    with pytest.raises(ValueError, match="one signature per file"):
        write_tflite(toy(), tmp_path, ["int8"], images, signatures=("classify", "embed"))
    with pytest.raises(ValueError, match="each of the 5 classes. Received: 2 names"):
        write_tflite(toy(), tmp_path, ["float32"], class_names=["a", "b"])
    with pytest.raises(ValueError, match="pooling='token'"):
        write_tflite(toy(pooling="none", num_classes=0), tmp_path, ["float32"], signatures=["embed"])
    with pytest.raises(ValueError, match="each of the 0 classes. Received: 1 names"):
        write_tflite(toy(num_classes=0), tmp_path, ["float32"], signatures=["embed"], class_names=["a"])
    for formats in (["float32"], ["int8"]):
        with pytest.raises(ValueError, match=r"model.resized\(224\)"):
            write_tflite(keras_vit.BiT(stages=(1,), width_factor=0.5, num_classes=5), tmp_path / "new", formats, images)
    for model, name in (("runs/model.keras", "str"), (keras.Sequential(), "Sequential")):
        with pytest.raises(ValueError, match=f"see keras_vit.load. Received: a {name}"):
            write_tflite(model, tmp_path / "new", ["float32"])
    adapted = toy()
    adapted.encoder.blocks[0].mlp.hidden.enable_lora(2)
    with pytest.raises(ValueError, match=r"LoRA, save .* as \.keras"):
        write_tflite(adapted, tmp_path / "new", ["float32"])
    assert not list(tmp_path.iterdir())
