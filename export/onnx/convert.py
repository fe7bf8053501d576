"""ONNX files, by Keras's exporter and tf2onnx."""

import functools
import importlib
import json
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_vit.atomic_write import new_files
from keras_vit.export.checks import check_classifier, exportable, exported_class_names
from keras_vit.export.names import CLASSIFY, INPUT, OUTPUTS, PROJECTION
from keras_vit.export.onnx.graph import (
    TF2ONNX_OPSET,
    fuse,
    name_tensors,
    separate_padding,
    to_float16,
    unknown_operations,
)
from keras_vit.images import normalize
from keras_vit.keras_internals import all_layers, is_quantized
from keras_vit.models.classification import has_classes, is_projection, output_activation
from keras_vit.models.copying import float32_copy
from keras_vit.models.outer_model import OuterModel

DTYPES = ("float32", "float16")

MAX_WEIGHT_BYTES = 2**31 - 2**24  # protobuf's limit of 2 GiB, less some space for the graph


def write_onnx(model, path, class_names=None, *, dtype: str = "float32", pixels: bool = False) -> Path:
    """Writes an ONNX file.

    Input: `images` (batch, H, W, 3) float32 after `model.preprocess`, any batch size; with `pixels` uint8, in [0, 255].
    Output: `logits` (batch, num_classes) float32, or `projection` if the head is one, as CLIP's; without a head
    `features` (batch, D), or (batch, N, D) with pooling="none". Opset 20; layer normalization and GELU are single
    operators. The file's metadata contain "preprocessing", the fields of `keras_vit.Preprocessing` as JSON, and of a
    classifier "activation", by which logits become probabilities ("softmax" or "sigmoid"), and "class_names", one per
    line. An existing file is replaced once the new one is complete.

    Requires `pip install 'vit-for-keras[onnx]'` and Keras's TensorFlow backend.

    Args:
        model: A `VisionTransformer`, `BiT` or `AxialResNet`; or a Sequential or functional model around one, whose
            inputs are then those of `keras_vit.models.outer_model.OuterModel.preprocess`, and whose output is
            `probabilities` if it ends in a softmax or sigmoid.
        path: File to write; must end in .onnx.
        class_names: See `write_saved_model`.
        dtype: Of weights and computation, whatever the model's is: "float32", or "float16" for GPUs and half the size.
            Input and output remain float32.
        pixels: Whether the file takes pixels and scales them itself, by mean and standard deviation. It does not
            resize.

    Returns:
        The path.

    Raises:
        ImportError: tf2onnx, onnx or, for float16, onnxruntime is not installed.
        ValueError: The path does not end in .onnx. The dtype is unknown. The model is not of keras_vit, has no image
            size, has a head on unpooled tokens, float8 layers, other quantized layers for float16, 2 GiB or more of
            float32 weights, or an operation that ONNX lacks. The number of class names differs from the number of
            classes. Keras's backend is not TensorFlow.
    """
    path = Path(path)
    model = _checked_model(model, path, dtype)
    names = exported_class_names(model, class_names)
    _import("tf2onnx")
    onnx = _import("onnx")
    if dtype == "float16":
        _import("onnxruntime")
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_files(path) as (file,):
        constants = _export(model, file, pixels)
        proto = onnx.load(file)
        arrays = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
        proto.graph.initializer.extend(arrays)
        fuse(proto, onnx)
        output = PROJECTION if is_projection(model) else "logits" if model.num_classes else "features"
        activation = output_activation(model)
        output = output if activation else OUTPUTS[CLASSIFY]
        name_tensors(proto.graph, output)
        separate_padding(proto.graph, onnx)
        if unknown := unknown_operations(proto.graph, onnx):
            raise ValueError(
                f"{model.name} has operations that ONNX lacks: {', '.join(unknown)}. Use write_saved_model or "
                "write_tflite."
            )
        if dtype == "float16":
            proto = to_float16(proto, onnx)
        metadata = {"preprocessing": json.dumps(model.preprocessing.get_config())}
        if has_classes(model) and activation:
            metadata["activation"] = activation
        onnx.helper.set_model_props(proto, metadata | ({"class_names": "\n".join(names)} if names else {}))
        onnx.checker.check_model(proto, full_check=True)
        onnx.save(proto, file)
    return path


def _checked_model(model, path, dtype):
    if path.suffix != ".onnx":
        raise ValueError(f"Expected a path that ends in .onnx. Received: {path}")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be 'float32' or 'float16'. Received: {dtype!r}")
    model = exportable(model, "An ONNX file")
    check_classifier(model)
    modes = {layer.quantization_mode for layer in all_layers(model) if is_quantized(layer)}
    if "float8" in modes or (modes and dtype == "float16"):
        raise ValueError(
            f"Expected a model before quantize(), or with int8 or int4 layers and dtype='float32'. "
            f"Received: {model.name} with {', '.join(sorted(modes))} layers and dtype={dtype!r}"
        )
    size = 4 * model.count_params()
    if size > MAX_WEIGHT_BYTES:
        raise ValueError(
            f"An ONNX file is at most 2 GiB. Received: {model.name} with {size / 2**30:.2f} GiB of float32 weights. "
            "Export it with write_saved_model."
        )
    return model


def _import(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"ONNX files require {name}: pip install 'vit-for-keras[onnx]' ({error}).") from error


@functools.cache
def _register_erfc():
    """Adds Erfc to tf2onnx: Keras's exact GELU, in layers around our models, is computed with it."""
    handler = _import("tf2onnx.handler")

    @handler.tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            [output], shape, dtype = node.output, ctx.get_shape(node.output[0]), ctx.get_dtype(node.output[0])
            one = ctx.make_const(f"{node.name}/one", np.array(1.0, "float32"))
            ctx.remove_node(node.name)
            erf = ctx.make_node("Erf", [node.input[0]], shapes=[shape], dtypes=[dtype])
            inputs = [one.output[0], erf.output[0]]
            ctx.make_node("Sub", inputs, outputs=[output], name=node.name, shapes=[shape], dtypes=[dtype])


def _export(model, file, pixels):
    _register_erfc()
    if isinstance(model, OuterModel) or model.dtype_policy.name != "float32":  # runtimes lack bfloat16 convolutions
        model = float32_copy(model)
    shape = (*model.image_size, model.channels)
    preprocessing = model.preprocessing
    if isinstance(model, OuterModel):  # Keras exports random layers as in training
        inputs = keras.Input(shape)
        model = keras.Model(inputs, model.model(inputs, training=False))
    if pixels:
        images = keras.Input(shape, dtype="uint8", name=INPUT)
        model = keras.Model(images, model(normalize(images, preprocessing.mean, preprocessing.std)))
    spec = keras.InputSpec(shape=(None, *shape), dtype="uint8" if pixels else "float32", name=INPUT)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "In the future `np.object`", FutureWarning)  # from Keras's patch for NumPy 2
        model.export(str(file), format="onnx", input_signature=[spec], verbose=False, opset_version=TF2ONNX_OPSET)
    return _constants(model, spec)


def _constants(model, spec) -> dict:
    """Arrays of a model that are no variables, by tensor: Keras leaves them as inputs, as of `Normalization`."""
    import tensorflow as tf

    graph = tf.function(model).get_concrete_function(tf.TensorSpec(spec.shape, spec.dtype, spec.name)).graph
    return {tensor.name: value.numpy() for value, tensor in graph.captures if value.dtype != tf.resource}
