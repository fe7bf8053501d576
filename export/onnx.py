"""ONNX files, by Keras's exporter and tf2onnx."""

import importlib
import json
import os
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_vit.classification import has_classes, is_projection, output_activation
from keras_vit.export.checks import check_classifier, check_exportable, exported_class_names, float32_copy
from keras_vit.export.names import INPUT, PROJECTION

MAX_WEIGHT_BYTES = 2**31 - 2**24  # protobuf's limit of 2 GiB, less some space for the graph


def write_onnx(model, path, class_names=None) -> Path:
    """Writes an ONNX file.

    Input: `images` (batch, H, W, 3) float32 after `model.preprocess`, any batch size. Output: `logits` (batch,
    num_classes) float32, or `projection` if the head is one, as CLIP's; without a head `features` (batch, D), or
    (batch, N, D) with pooling="none". Opset 15. A model of another precision is written in float32. The file's metadata
    contain "preprocessing", the fields of `keras_vit.Preprocessing` as JSON, and of a classifier "activation", by which
    logits become probabilities ("softmax" or "sigmoid"), and "class_names", one per line. An existing file is replaced
    once the new one is complete.

    Requires `pip install 'keras_vit[onnx]'` and Keras's TensorFlow backend.

    Args:
        model: A `VisionTransformer`, `BiT` or `AxialResNet`.
        path: File to write; must end in .onnx.
        class_names: See `write_saved_model`.

    Returns:
        The path.

    Raises:
        ImportError: tf2onnx or onnx is not installed.
        ValueError: The path does not end in .onnx. The model is not of keras_vit, has no image size, has a head on
            unpooled tokens, has LoRA weights in another precision, has 2 GiB or more of float32 weights, or has an
            operation that ONNX lacks. The number of class names differs from the number of classes. Keras's backend is
            not TensorFlow.
    """
    path = Path(path)
    _check(model, path)
    names = exported_class_names(model, class_names)
    onnx = _import_onnx()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as temporary:
        file = Path(temporary) / path.name
        _export(model, file)
        proto = onnx.load(file)
        output = PROJECTION if is_projection(model) else "logits" if model.num_classes else "features"
        _name_tensors(proto.graph, output)
        _separate_padding(proto.graph, onnx)
        metadata = {"preprocessing": json.dumps(model.preprocessing.get_config())}
        if has_classes(model):
            metadata["activation"] = output_activation(model)
        onnx.helper.set_model_props(proto, metadata | ({"class_names": "\n".join(names)} if names else {}))
        try:
            onnx.checker.check_model(proto, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ValueError(f"{model.name} has an operation that ONNX does not support: {error}") from error
        onnx.save(proto, file)
        os.replace(file, path)
    return path


def _check(model, path):
    if path.suffix != ".onnx":
        raise ValueError(f"Expected a path that ends in .onnx. Received: {path}")
    check_exportable(model, "An ONNX file")
    check_classifier(model)
    size = 4 * model.count_params()
    if size > MAX_WEIGHT_BYTES:
        raise ValueError(
            f"An ONNX file is at most 2 GiB. Received: {model.name} with {size / 2**30:.2f} GiB of float32 weights. "
            "Export it with write_saved_model."
        )


def _import_onnx():
    try:
        importlib.import_module("tf2onnx")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(f"ONNX files require tf2onnx and onnx: pip install 'keras_vit[onnx]' ({error}).") from error


def _export(model, file):
    if model.dtype_policy.name != "float32":  # runtimes lack bfloat16 convolutions
        model = float32_copy(model)
    spec = keras.InputSpec(shape=(None, *model.image_size, 3), dtype="float32", name=INPUT)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "In the future `np.object`", FutureWarning)  # from Keras's patch for NumPy 2
        model.export(str(file), format="onnx", input_signature=[spec], verbose=False)


def _name_tensors(graph, output):
    """Renames the output and the open batch dimension."""
    [end] = graph.output
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == end.name:
                    names[index] = output
    end.name = output
    for value in (*graph.input, end):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def _separate_padding(graph, onnx):
    """Inserts a no-op between the zero padding of BiT's root block and its max pooling.

    onnxruntime up to 1.31 fuses Pad into MaxPool as if it padded with -inf (onnxruntime, issue 24737). A maximum with
    the lowest float32 prevents that and changes no value.
    """
    padded = {node.output[0] for node in graph.node if node.op_type == "Pad"}
    pools = [node for node in graph.node if node.op_type == "MaxPool" and node.input[0] in padded]
    if not pools:
        return
    lowest = onnx.numpy_helper.from_array(np.finfo("float32").min, "lowest_float32")
    graph.initializer.append(lowest)
    for pool in pools:
        separated = f"{pool.input[0]}/separated"
        node = onnx.helper.make_node("Max", [pool.input[0], lowest.name], [separated], name=separated)
        graph.node.insert(list(graph.node).index(pool), node)
        pool.input[0] = separated
