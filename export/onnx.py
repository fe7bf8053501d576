"""ONNX files, through Keras's own exporter and tf2onnx."""

import functools
import importlib
import json
import os
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_vit.export.exportable import check_classifier, check_exportable
from keras_vit.export.labels import class_names
from keras_vit.export.tflite.device_form import INPUT, float32_copy

MOST_BYTES = 2**31 - 2**24  # protobuf ends at 2 GiB; the rest is for the graph


def write_onnx(model, path, labels=None) -> Path:
    """Writes an ONNX file for onnxruntime and its like.

    Input: `images` (batch, H, W, 3) float32 in the model's range, any batch. Output: `logits` (batch, num_classes)
    float32; without a head `features` (batch, D), or (batch, N, D) with pooling="none". Opset 15. A model of another
    precision is written in float32. The file's metadata hold "preprocessing", the fields of `keras_vit.Preprocessing`
    as JSON, and "labels", one a line. A file that is there is replaced once the new one is complete.

    Needs `pip install 'keras_vit[onnx]'` and Keras's TensorFlow backend.

    Args:
        model: A `VisionTransformer`, `BiT` or `AxialResNet`.
        path: Of the file, which must end in .onnx.
        labels: See `write_saved_model`.

    Returns:
        The path.

    Raises:
        ImportError: tf2onnx or onnx is not installed.
        ValueError: Another ending; a model that is none of keras_vit, without an image size, with a head on unpooled
            tokens, with LoRA in another precision, of 2 GiB or more in float32, or with an operation that ONNX lacks;
            labels are not as many as classes; Keras has another backend than TensorFlow.
    """
    path = Path(path)
    _check(model, path)
    names = None if labels is None else class_names(labels, model.num_classes)
    onnx = _imported()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as aside:
        file = Path(aside) / path.name
        _export(model, file)
        proto = onnx.load(file)
        _name_ends(proto.graph, "logits" if model.num_classes else "features")
        _keep_padding(proto.graph, onnx)
        texts = {"preprocessing": json.dumps(model.preprocessing.get_config())}
        onnx.helper.set_model_props(proto, texts | ({"labels": "\n".join(names)} if names else {}))
        try:
            onnx.checker.check_model(proto, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ValueError(f"{model.name} holds something that ONNX lacks: {error}") from error
        onnx.save(proto, file)
        os.replace(file, path)
    return path


def onnx_session(path):
    """The file in onnxruntime, on the processor.

    Raises:
        ImportError: onnxruntime is not installed.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError(f"To run ONNX files: pip install 'keras_vit[onnx]' ({error}).") from error
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _check(model, path):
    if path.suffix != ".onnx":
        raise ValueError(f"Expected the name of a file that ends in .onnx. Received: {path}")
    check_exportable(model, "An ONNX file")
    check_classifier(model)
    size = 4 * model.count_params()
    if size > MOST_BYTES:
        raise ValueError(
            f"An ONNX file holds at most 2 GiB, but {model.name} has {size / 2**30:.2f} GiB of float32 weights. Export "
            "it with write_saved_model."
        )


def _imported():
    try:
        importlib.import_module("tf2onnx")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(f"ONNX files need tf2onnx and onnx: pip install 'keras_vit[onnx]' ({error}).") from error


def _export(model, file):
    _teach_erfc()
    if model.dtype_policy.name != "float32":  # runtimes have no convolution in bfloat16
        model = float32_copy(model)
    spec = keras.InputSpec(shape=(None, *model.image_size, 3), dtype="float32", name=INPUT)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "In the future `np.object`", FutureWarning)  # Keras's patch for NumPy 2
        model.export(str(file), format="onnx", input_signature=[spec], verbose=False)


@functools.cache
def _teach_erfc():
    """TensorFlow's exact GELU has an Erfc, which ONNX and tf2onnx 1.17 lack (tensorflow-onnx, pull request 2463)."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            [output], shape, dtype = node.output, ctx.get_shape(node.output[0]), ctx.get_dtype(node.output[0])
            one = ctx.make_const(f"{node.name}/one", np.array(1.0, "float32"))
            ctx.remove_node(node.name)
            erf = ctx.make_node("Erf", [node.input[0]], shapes=[shape], dtypes=[dtype])
            inputs = [one.output[0], erf.output[0]]
            ctx.make_node("Sub", inputs, outputs=[output], name=node.name, shapes=[shape], dtypes=[dtype])


def _name_ends(graph, output):
    """Gives the output and the open batch names that people can read."""
    [end] = graph.output
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == end.name:
                    names[place] = output
    end.name = output
    for value in (*graph.input, end):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def _keep_padding(graph, onnx):
    """Keeps the zeros around BiT's first maps: onnxruntime up to 1.31 merges Pad into MaxPool, as if they were -inf.

    (onnxruntime, issue 24737.) A maximum with the lowest number stands between them and changes nothing.
    """
    padded = {node.output[0] for node in graph.node if node.op_type == "Pad"}
    pools = [node for node in graph.node if node.op_type == "MaxPool" and node.input[0] in padded]
    if not pools:
        return
    lowest = onnx.numpy_helper.from_array(np.finfo("float32").min, "lowest_float32")
    graph.initializer.append(lowest)
    for pool in pools:
        kept = f"{pool.input[0]}/kept"
        node = onnx.helper.make_node("Max", [pool.input[0], lowest.name], [kept], name=kept)
        graph.node.insert(list(graph.node).index(pool), node)
        pool.input[0] = kept
