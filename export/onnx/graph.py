"""Rewrites the graph of an ONNX file: single operators for layer normalization, GELU and dense layers; names; float16.

tf2onnx writes each of them as up to ten operations, which no runtime fuses in that form. x is the input of a pattern.
"""

from itertools import permutations

import numpy as np

OPSET = 20  # the first one with Gelu
TF2ONNX_OPSET = 18  # the last one that tf2onnx knows; our operators are the same in both

# (operator, inputs...); a number is a constant, a string any tensor, the same wherever the string is.
_CENTERED = ("Sub", "x", ("ReduceMean", "x", "axes"))
_VARIANCE = ("ReduceMean", ("Mul", _CENTERED, _CENTERED), "axes")
_RSTD = ("Reciprocal", ("Sqrt", ("Add", _VARIANCE, "epsilon")))
# TensorFlow orders the factors as it likes, and omits those that are all 1 and addends that are all 0.
_SCALED = (("Mul", _CENTERED, ("Mul", _RSTD, "gamma")), ("Mul", ("Mul", _CENTERED, _RSTD), "gamma"))
_NORMS = (*_SCALED, ("Mul", _CENTERED, _RSTD))
_LAYER_NORMS = (*(("Add", norm, "beta") for norm in _NORMS), *_NORMS)
_CUBIC = ("Add", "x", ("Mul", 0.044715, ("Pow", "x", 3.0)))
_GELUS = {  # the form in ONNX -> the pattern
    "tanh": ("Mul", ("Mul", 0.5, "x"), ("Add", 1.0, ("Tanh", ("Mul", (2 / np.pi) ** 0.5, _CUBIC)))),
    "none": ("Mul", ("Mul", 0.5, "x"), ("Add", 1.0, ("Erf", ("Mul", "x", 0.5**0.5)))),
}
_DENSE = ("Reshape", ("MatMul", ("Reshape", "x", "rows"), "kernel"), "shape")


def fuse(proto, onnx):
    """Replaces patterns of a model with opset 18, in place, by LayerNormalization, Gelu and MatMul; opset 20."""
    graph = proto.graph
    patterns = _Patterns(onnx.shape_inference.infer_shapes(proto, data_prop=True).graph, onnx)
    fused = [(node, patterns.fused(node.output[0])) for node in graph.node]
    for node, new in fused:
        if new is not None:
            node.CopyFrom(new)
    graph.initializer.extend(patterns.added)
    used = {value.name for value in graph.output}
    for node in reversed(list(graph.node)):
        if used.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            used.update(_read(node))
    for constant in [value for value in graph.input if value.name in {x.name for x in graph.initializer}]:
        graph.input.remove(constant)
    for name in ("initializer", "value_info"):
        values = getattr(graph, name)
        kept = [value for value in values if value.name in used]
        del values[:]
        values.extend(kept)
    [version] = [entry for entry in proto.opset_import if entry.domain == ""]
    version.version = OPSET


def _read(node) -> list[str]:
    """Names of the tensors that an operation reads, also within its subgraphs."""
    graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    inner = [name for graph in graphs for part in graph.node for name in _read(part)]
    return [*node.input, *inner, *(value.name for graph in graphs for value in graph.output)]


def unknown_operations(graph, onnx) -> list[str]:
    """Kinds of operations that ONNX lacks, which tf2onnx leaves as they are in TensorFlow."""
    kinds = {node.op_type for node in graph.node if not onnx.defs.has(node.op_type, OPSET, node.domain)}
    graphs = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return sorted(kinds.union(*(unknown_operations(inner, onnx) for inner in graphs)))


class _Patterns:
    """Finds patterns in a graph with shapes, and creates the operators that replace them."""

    def __init__(self, graph, onnx):
        self.onnx = onnx
        self.producers = {output: node for node in graph.node for output in node.output}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):  # 0 is an open dimension
            self.shapes[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        self.added: list = []

    def fused(self, tensor):
        """The operator that computes a tensor in place of a pattern; None if no pattern ends there."""
        for pattern in _LAYER_NORMS:
            if (found := self.match(pattern, tensor)) and self._normalizes_last_axis(found):
                return self._layer_norm(found, tensor)
        for form, pattern in _GELUS.items():
            if found := self.match(pattern, tensor):
                return self.onnx.helper.make_node("Gelu", [found["x"]], [tensor], name=tensor, approximate=form)
        if (found := self.match(_DENSE, tensor)) and self._is_dense(found, tensor):
            return self.onnx.helper.make_node("MatMul", [found["x"], found["kernel"]], [tensor], name=tensor)
        return None

    def match(self, pattern, tensor, found=None) -> dict | None:
        """The tensors of a pattern's strings, if the pattern ends with the tensor."""
        found = found or {}
        if isinstance(pattern, str):
            return found | {pattern: tensor} if found.get(pattern, tensor) == tensor else None
        if isinstance(pattern, float):
            value = self.constant(tensor)
            return found if value is not None and value.size == 1 and np.isclose(value, pattern).all() else None
        node, (operator, *inputs) = self.producers.get(tensor), pattern
        if node is None or node.op_type != operator or len(node.input) != len(inputs):
            return None
        if any(attribute.name == "keepdims" and not attribute.i for attribute in node.attribute):
            return None
        for order in permutations(node.input) if operator in ("Add", "Mul") else [node.input]:
            matched: dict | None = found
            for part, name in zip(inputs, order):
                matched = None if matched is None else self.match(part, name, matched)
            if matched is not None:
                return matched
        return None

    def constant(self, tensor):
        return self.onnx.numpy_helper.to_array(self.constants[tensor]) if tensor in self.constants else None

    def _normalizes_last_axis(self, found) -> bool:
        width = self.shapes.get(found["x"], [])[-1:]
        axes, epsilon = self.constant(found["axes"]), self.constant(found["epsilon"])
        vectors = [found[name] for name in ("gamma", "beta") if name in found]
        return (
            all(width)
            and axes is not None
            and axes.tolist() in ([-1], [len(self.shapes[found["x"]]) - 1])
            and epsilon is not None
            and epsilon.size == 1
            and all(name in self.constants and self.shapes[name] == width for name in vectors)
        )

    def _layer_norm(self, found, tensor):
        gamma = found.get("gamma")
        if gamma is None:  # ONNX requires one
            ones = np.ones(self.shapes[found["x"]][-1], "float32")
            self.added.append(self.onnx.numpy_helper.from_array(ones, gamma := f"{tensor}/gamma"))
        inputs = [found["x"], gamma, *([found["beta"]] if "beta" in found else [])]
        epsilon = float(self.constant(found["epsilon"]).item())
        return self.onnx.helper.make_node("LayerNormalization", inputs, [tensor], name=tensor, axis=-1, epsilon=epsilon)

    def _is_dense(self, found, tensor) -> bool:
        """Whether the second reshape only restores the axes that the first one merged."""
        shape, kernel = self.shapes.get(found["x"], []), self.shapes.get(found["kernel"], [])
        is_open = shape.count(0) <= 1  # more would not determine the others
        return (
            is_open
            and len(kernel) == 2
            and kernel[0] == shape[-1]
            and self.shapes.get(tensor) == [*shape[:-1], kernel[1]]
        )


def name_tensors(graph, output):
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


_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare")
_OF_AXES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Tile")  # of their first input
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Sqrt", "Reciprocal", "Max", "Min", "Clip")


def to_float16(proto, onnx):
    """A model in half precision, but with float32 inputs, outputs and `_normalizations`."""
    from onnxruntime.transformers import float16, onnx_model

    names = _normalizations(proto.graph)
    half = onnx_model.OnnxModel(float16.convert_float_to_float16(proto, keep_io_types=True, node_block_list=names))
    casts: dict = {}  # onnxruntime casts a tensor once for each reader, always under the same name
    for node in list(half.model.graph.node):
        if node.op_type == "Cast" and casts.setdefault(node.output[0], node) is not node:
            half.model.graph.node.remove(node)
    half.remove_cascaded_cast_nodes()
    precise = {name for node in half.model.graph.node if node.name in names for name in node.output}
    for name, cast in casts.items():  # from float32 to float32, after the one before it was removed
        if cast.attribute[0].i == onnx.TensorProto.FLOAT and cast.input[0] in precise:
            half.replace_input_of_all_nodes(name, cast.input[0])
    half.prune_graph()
    half.topological_sort()
    return half.model


def _normalizations(graph) -> list[str]:
    """Names of the operations that depend on sums of squares, and on nothing else than what was squared.

    Squares above 65,504 are infinite in float16, and the difference of a large activation and its mean loses its
    digits.
    """
    producers = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    squared = {name for node in graph.node for name in _squared(node, producers)}
    precise: set = set()  # tensors
    names = []
    for node in graph.node:
        inputs = {name for name in node.input if name and name not in constants}
        inputs = {node.input[0]} if node.op_type in _OF_AXES else inputs
        if node.op_type in _REDUCTIONS or _is_square(node):
            belongs = not inputs.isdisjoint(precise | squared)
        else:
            belongs = node.op_type in (*_ELEMENTWISE, *_OF_AXES) and not inputs.isdisjoint(precise)
        if belongs and inputs <= precise | squared:
            precise.update(node.output)
            names.append(node.name)
    return names


def _squared(node, producers) -> list[str]:
    """The tensors whose squares a reduction adds up, of centered ones those before the centering."""
    if node.op_type not in _REDUCTIONS:
        return []
    tensor = node.input[0]
    if node.op_type in ("ReduceMean", "ReduceSum"):
        if tensor not in producers or not _is_square(producers[tensor]):
            return []
        tensor = producers[tensor].input[0]
    centering = producers.get(tensor)
    if centering is None or centering.op_type != "Sub":
        return [tensor]
    others = [name for name in centering.input if not _is_reduced(name, producers)]
    return others if len(others) == 1 else [tensor]


def _is_square(node) -> bool:
    return node.op_type == "Pow" or (node.op_type == "Mul" and len({*node.input}) == 1)


def _is_reduced(tensor, producers) -> bool:
    while tensor in producers and producers[tensor].op_type in _OF_AXES:
        tensor = producers[tensor].input[0]
    return tensor in producers and producers[tensor].op_type in _REDUCTIONS


def separate_padding(graph, onnx):
    """Inserts a no-op between a padding by zeros and the max pooling after it, as in ResNetV2 of keras.applications.

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
