"""A float32 .tflite file and what its activations are on images. n images, H W pixels, D width."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.flatbuffer import operators_of_kind, pack_model, unpack_model
from keras_vit.export.tflite.graph import batches

_TOKENS = 64  # of an image, whose tokens are alike, count for the moments of weights' inputs
_TOGETHER = 8  # batches in a product of matrices: one of few tokens takes less time than its threads to start
_LINEAR = (schema.BuiltinOperator.FULLY_CONNECTED, schema.BuiltinOperator.CONV_2D)


class Float32File:
    """A float32 file that integer files are made from; it is read and run once for all of them.

    Args:
        content: The content of a .tflite file.
        images: (n, H, W, 3) float32 in [0, 255], of a calibration; None for formats without one. With images, the file
            has one signature and one input.
    """

    def __init__(self, content: bytes, images=None):
        self.content, self.images = content, images

    @cached_property
    def model(self) -> schema.ModelT:
        """See `unpack_model`; nothing changes it."""
        return unpack_model(self.content)

    @cached_property
    def extremes(self) -> dict[int, np.ndarray]:
        """The smallest and the largest value of each float activation in each image, {index: (2, n)}."""
        (graph,) = self.model.subgraphs
        written = {int(index) for operator in graph.operators for index in operator.outputs}
        activations = [index for index in sorted(written) if graph.tensors[index].type == schema.TensorType.FLOAT32]
        extremes: dict[int, list] = {index: [] for index in activations}
        batch_size = graph.tensors[graph.inputs[0]].shape[0]
        for index, values in self.values(activations):
            of_images = values.reshape(batch_size if values.size % batch_size == 0 else 1, -1)
            extremes[index] += zip(of_images.min(axis=1), of_images.max(axis=1))
        return {index: np.transpose(ends) for index, ends in extremes.items()}

    @cached_property
    def moments(self) -> dict[tuple, np.ndarray]:
        """Moments of the inputs of all linear layers, {(name of the tensor, patch size): (D + 1, D + 1)}.

        X^T X, where X are inputs with a last column of ones: second moments, sums and their number. Inputs of a
        convolution of patches are its patches, see `patch_size`.
        """
        (graph,) = self.model.subgraphs
        sizes: dict[int, set] = {}
        for _, layer in linear_layers(self.model):
            if size := patch_size(graph, layer):
                sizes.setdefault(int(layer.inputs[0]), set()).add(size)
        batch_size = graph.tensors[graph.inputs[0]].shape[0]
        moments: dict = {}
        waiting: dict[tuple, list] = {}
        for number, (index, batch) in enumerate(self.values(sorted(sizes))):
            remaining = len(self.images) - number // len(sizes) * batch_size  # the last batch is filled with copies
            for size in sizes[index]:
                values = _patches(batch, *size)
                values = values.reshape(batch_size, -1, values.shape[-1])  # (B, n, D)
                values = values[:remaining, :: max(1, values.shape[1] // _TOKENS)].reshape(-1, values.shape[-1])
                key = graph.tensors[index].name.decode(), size
                waiting.setdefault(key, []).append(values)
                if len(waiting[key]) < _TOGETHER and remaining > batch_size:
                    continue
                values = np.pad(np.concatenate(waiting.pop(key)), ((0, 0), (0, 1)), constant_values=1)
                moments[key] = moments.get(key, 0) + values.T @ values
        return moments

    def values(self, indices: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (index, values) of these activations, float32, for each batch of images.

        They become outputs of the file, because XNNPACK stores no others. It is five times as fast as LiteRT's own
        kernels.
        """
        model = self.model
        (graph,), signatures = model.subgraphs, model.signatureDefs
        outputs, graph.outputs, model.signatureDefs = graph.outputs, np.array(indices, "int32"), []
        interpreter = Interpreter(model_content=pack_model(model), num_threads=2)
        graph.outputs, model.signatureDefs = outputs, signatures
        interpreter.allocate_tensors()
        (entry,) = interpreter.get_input_details()
        places = [output["index"] for output in interpreter.get_output_details()]
        for batch in batches(self.images, entry["shape"][0]):
            interpreter.set_tensor(entry["index"], batch)
            interpreter.invoke()
            for index, place in zip(indices, places, strict=True):
                yield index, interpreter.get_tensor(place)


def linear_layers(model: schema.ModelT) -> list[tuple[schema.SubGraphT, schema.OperatorT]]:
    """The operators whose weights `rounding.learn_rounding` rounds, each with its subgraph."""
    return [found for code in _LINEAR for found in operators_of_kind(model, code)]


def patch_size(graph: schema.SubGraphT, layer: schema.OperatorT) -> tuple[int, int] | None:
    """Height and width of the patches that a linear layer multiplies, (1, 1) for a FULLY_CONNECTED.

    None for a convolution whose patches overlap, are padded or have gaps.
    """
    if layer.builtinOptionsType == schema.BuiltinOptions.FullyConnectedOptions:
        return 1, 1
    (height, width), options = map(int, graph.tensors[layer.inputs[1]].shape[1:3]), layer.builtinOptions
    rows, columns = graph.tensors[layer.inputs[0]].shape[1:3]
    padded = options.padding == schema.Padding.SAME and (rows % height or columns % width)
    apart = (options.strideH, options.strideW) == (height, width) != (1, 1)
    return (height, width) if apart and not padded and options.dilationHFactor == options.dilationWFactor == 1 else None


def _patches(values, height, width):
    """(..., D) -> (n, D), or (B, H, W, C) -> (B h w, `height` `width` C)."""
    if (height, width) == (1, 1):
        return values.reshape(-1, values.shape[-1])
    values = values[:, : values.shape[1] // height * height, : values.shape[2] // width * width]
    batch, rows, columns, channels = values.shape
    values = values.reshape(batch, rows // height, height, columns // width, width, channels)
    return values.swapaxes(2, 3).reshape(-1, height * width * channels)
