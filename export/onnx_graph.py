"""Rewrites the graph of an ONNX file: single operators for layer normalization, GELU and dense layers; names.

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
            used.update(node.input)
    for name in ("initializer", "value_info"):
        values = getattr(graph, name)
        kept = [value for value in values if value.name in used]
        del values[:]
        values.extend(kept)
    [version] = [entry for entry in proto.opset_import if entry.domain == ""]
    version.version = OPSET


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
            axes is not None
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
        return is_open and len(kernel) == 2 and self.shapes.get(tensor) == [*shape[:-1], kernel[1]]


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
