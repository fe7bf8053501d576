"""Files of networks that are none of ours: activations, normalizations and branches of Keras and of users."""

import foreign_networks as foreign
import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from foreign_networks import CALIBRATION, NAMES, Own, classifier, error, random_network
from keras import layers as L
from onnx.reference import ReferenceEvaluator

from keras_vit.export import FORMATS, write_onnx, write_saved_model, write_tflite
from keras_vit.export.tflite.arithmetic import INTEGERS
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.flatbuffer import pack_model, unpack_model
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.export.tflite.quantize import quantize
from keras_vit.export.tflite.ranges import activation_ranges, fixed_ranges
from keras_vit.export.tflite.request import DYNAMIC, STATIC
from keras_vit.export.tflite.signatures import convert

pytestmark = pytest.mark.slow
FLOAT_ERRORS = {"float32": 1e-3, "saved_model": 1e-3, "onnx float32": 1e-3}


def similar_network():
    """Operations that the rewrites make as well, of a user: ELU, GELU, RELU6, maxima, squares, roots, products."""
    x = inputs = keras.Input((18, 18, 3))
    x = L.LayerNormalization()(L.Conv2D(16, 3, 2, "same")(x))
    for kind in ("elu of x - max", "elu + 1", "x + gelu(x)", "x + relu6(x)", "own softmax", "attention"):
        x = Own(kind)(x)
    x = L.Dense(16, "elu")(L.GlobalMaxPooling2D()(x))
    return classifier(keras.Model(inputs, x))


def test_operations_of_others_are_not_taken_for_ours():
    """Whatever their names are, quantized files are the same; and ranges are those that were measured."""
    model = similar_network()
    images = foreign.images(model)[:20]
    renamed = unpack_model(float32 := convert(folded_copy(model), form=INTEGERS))
    for index, tensor in enumerate(renamed.subgraphs[0].tensors):
        tensor.name = f"{NAMES[index % len(NAMES)]}/{tensor.name.decode()}/mul".encode()
    files, results = [Float32File(content, images) for content in (float32, pack_model(renamed))], []
    for file in files:
        measured = activation_ranges(file, narrow=True)
        assert fixed_ranges(file.model, measured) == measured and len(measured) > 40
        for name in (*DYNAMIC, *STATIC):
            (graph,) = quantize(file, name).subgraphs
            scales = [tensor.quantization and str(tensor.quantization.scale) for tensor in graph.tensors]
            results.append((len(graph.operators), [tensor.type for tensor in graph.tensors], scales))
    half = len(results) // 2
    assert results[:half] == results[half:]


def test_biases_of_nearly_pruned_layers_are_kept(tmp_path):
    """Beside inputs or weights of about 0, biases had overflowed; see `quantized_plainly` for what is possible."""
    x = inputs = keras.Input((18, 18, 3))
    x = foreign.BRANCHES["off"](L.Conv2D(8, 3, 2, "same")(x))
    tiny = L.Conv2D(8, 1, kernel_initializer=keras.initializers.RandomNormal(0, 1e-8))(x)
    model = classifier(keras.Model(inputs, L.Add()([x, tiny])))
    images = foreign.images(model)
    expected = tf.nn.softmax(model(model.preprocess(images))).numpy()
    for file in write_tflite(model, tmp_path, ["int8", "int16x8"], images[:CALIBRATION]).values():
        assert error(run_tflite(file, images)[0], expected) < 0.1


def test_16_bit_sums_of_powers_of_2(tmp_path):
    """LiteRT does not load a sum whose three steps are powers of 2 and whose inputs would both be shifted."""
    x = inputs = keras.Input((18, 18, 3))
    x = L.Activation("sigmoid")(L.Rescaling(100)(L.Conv2D(8, 3, 2, "same")(x)))  # in [0, 1]
    model = classifier(keras.Model(inputs, L.Activation("elu")(x + 1.0)))
    images = foreign.images(model)
    expected = tf.nn.softmax(model(model.preprocess(images))).numpy()
    (file,) = write_tflite(model, tmp_path, ["int16x8"], images[:CALIBRATION]).values()
    assert error(run_tflite(file, images)[0], expected) < 0.05


def test_onnx_normalizations_in_half_precision(tmp_path):
    """Squares and moments above 65,504, in onnx's evaluator, which rounds every result, and in onnxruntime."""
    x = inputs = keras.Input((18, 18, 3))
    x = L.Conv2D(8, 3, 2, "same")(x)
    branches = [L.LayerNormalization(), L.GroupNormalization(2), L.LayerNormalization(axis=(1, 2, 3))]
    branches += [L.RMSNormalization(), L.UnitNormalization(), *(Own(kind) for kind in foreign.OWN_NORMS)]
    branches += [keras.Sequential([L.LayerNormalization(), L.Conv2D(4, 1)])]
    model = classifier(keras.Model(inputs, L.Concatenate()([branch(L.Rescaling(3000)(x)) for branch in branches])))
    images = np.asarray(model.preprocess(foreign.images(model)[CALIBRATION:]))
    file = str(write_onnx(model, tmp_path / "half.onnx", dtype="float16"))
    for run in (onnxruntime.InferenceSession(file).run, ReferenceEvaluator(file).run):
        assert error(tf.nn.softmax(run(None, {"images": images})[0]), tf.nn.softmax(model(images))) < 0.02
    graph = onnx.load(file).graph
    kernels = {node.input[1] for node in graph.node if node.op_type in ("Conv", "MatMul")}
    kinds = [tensor.data_type for tensor in graph.initializer if tensor.name in kernels]
    assert kinds == [onnx.TensorProto.FLOAT16] * len(kernels) and len(kernels) == 3


def errors_of_files(model, folder) -> dict[str, float]:
    """The errors of all files of a model, by format."""
    images = foreign.images(model)
    calibration, images = images[:CALIBRATION], images[CALIBRATION:]
    inputs = np.asarray(model.preprocess(images))
    expected = tf.nn.softmax(model(inputs)).numpy()
    files = write_tflite(model, folder, FORMATS, calibration)
    outputs = {name: run_tflite(file, images)[0] for name, file in files.items()}
    loaded = tf.saved_model.load(str(write_saved_model(model, folder / "saved_model")))
    outputs["saved_model"] = loaded.signatures["classify"](images=tf.constant(inputs))["probabilities"].numpy()
    for dtype in ("float32", "float16"):
        file = str(write_onnx(model, folder / f"{dtype}.onnx", dtype=dtype))
        (logits,) = onnxruntime.InferenceSession(file).run(None, {"images": inputs})
        outputs[f"onnx {dtype}"] = tf.nn.softmax(logits).numpy()
    return {name: error(found, expected) for name, found in outputs.items()}


def check_files(model, folder):
    """Floats are as exact as their format, integers about as those of TensorFlow's or LiteRT's quantizer alone."""
    errors, limits = errors_of_files(model, folder), dict(FLOAT_ERRORS)
    images = foreign.images(model)
    expected = tf.nn.softmax(model(model.preprocess(images[CALIBRATION:]))).numpy()
    weights = model.get_weights()
    model.set_weights([weight.astype("float16") for weight in weights])
    rounded = error(tf.nn.softmax(model(model.preprocess(images[CALIBRATION:]))).numpy(), expected)
    model.set_weights(weights)
    limits |= {"float16": max(0.02, 1.5 * rounded), "onnx float16": max(0.03, 3 * rounded)}  # ONNX rounds results, too
    for name in (*DYNAMIC, *STATIC):
        (plain := folder / f"plain-{name}.tflite").write_bytes(
            foreign.quantized_plainly(model, name, images[:CALIBRATION])
        )
        try:
            limits[name] = max(0.05, 1.5 * error(run_tflite(plain, images[CALIBRATION:])[0], expected))
        except RuntimeError:  # LiteRT does not run it
            limits[name] = limits.get("int8", 0.3)
    wrong = {name: (errors[name], limit) for name, limit in limits.items() if not errors[name] <= limit}
    assert limits.keys() == errors.keys() and not wrong, wrong


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(6))
def test_files_of_random_networks(seed, tmp_path):
    model, kinds = random_network(seed)
    print(kinds)
    check_files(model, tmp_path)
