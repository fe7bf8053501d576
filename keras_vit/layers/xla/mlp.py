"""Dense layers of tokens, and GELU with explicit gradients. B batch, N tokens, D width, E units.

All forms of GELU are x gate(x): the gate of "erf" is the normal distribution, of "tanh" and "quick" a sigmoid.
"""

import math
from functools import partial

import keras
from keras import ops

from keras_vit.keras_internals import compiled_by_xla, is_quantized
from keras_vit.layers.xla.island import can_compile_island, island
from keras_vit.layers.xla.recompute import custom_gradient

# 2 sqrt(2 / pi), and that times the coefficient of the cubic term.
LINEAR = 1.5957691216057308
CUBIC = LINEAR * 0.044715
# The factor in x sigmoid(1.702 x), "Gaussian Error Linear Units", arXiv 1606.08415, section 2.
QUICK = 1.702


def gelu_for_training(x, form="tanh"):
    """GELU ("Gaussian Error Linear Units", arXiv 1606.08415, section 2) with an explicit gradient.

    It reads and writes the largest tensors of a block less often than the derived one: from x the gradient computes the
    gate again, except for "tanh" outside of an `island`, where it is stored. It is computed in at least float32:
    bfloat16 is slower on a CPU, operation by operation. For inference `keras.ops.gelu` is better, because converters
    recognize it.

    Args:
        x: Any shape.
        form: "tanh", 0.5 x (1 + tanh(u)) as x sigmoid(2 u); "erf", without approximation; or "quick".
    """
    return _FUNCTIONS[form](x)


def _explicit(forward, gradient):
    """The function with the gradient (x, upstream)."""

    @custom_gradient
    def gelu(x):
        first, second = (island(forward), island(gradient)) if can_compile_island() else (forward, gradient)
        return first(x), partial(second, x)

    return gelu


@custom_gradient
def _tanh_gelu(x):
    if can_compile_island():
        return island(_gelu)(x), partial(island(_gradient), x)
    wide, gate, output = _parts(x)
    return ops.cast(output, x.dtype), partial(_gradient_of_parts, wide, gate, output)


def _parts(x):
    """x, the gate and their product in at least float32."""
    wide = _wide(x)
    gate = ops.sigmoid(wide * (ops.square(wide) * CUBIC + LINEAR))
    return wide, gate, wide * gate


def _gradient_of_parts(wide, gate, output, upstream):
    derivative = gate + (output - output * gate) * (ops.square(wide) * (3 * CUBIC) + LINEAR)
    return ops.cast(ops.cast(upstream, wide.dtype) * derivative, upstream.dtype)


def _gelu(x):
    return ops.cast(_parts(x)[-1], x.dtype)


def _gradient(x, upstream):
    return _gradient_of_parts(*_parts(x), upstream)


def exact_gelu(x):
    """GELU without approximation, in the form that converters recognize. Any shape."""
    wide = _wide(x)
    return ops.cast(0.5 * wide * (1 + ops.erf(wide * 0.5**0.5)), x.dtype)


def _erf_gradient(x, upstream):
    wide = _wide(x)
    density = ops.exp(-0.5 * ops.square(wide)) * (2 * math.pi) ** -0.5
    return ops.cast(ops.cast(upstream, wide.dtype) * (_distribution(wide) + wide * density), x.dtype)


def _distribution(wide):
    return 0.5 * (1 + ops.erf(wide * 0.5**0.5))


def _quick_gelu(x):
    wide = _wide(x)
    return ops.cast(wide * ops.sigmoid(QUICK * wide), x.dtype)


def _quick_gradient(x, upstream):
    wide = _wide(x)
    gate = ops.sigmoid(QUICK * wide)
    return ops.cast(ops.cast(upstream, wide.dtype) * (gate + QUICK * wide * gate * (1 - gate)), x.dtype)


def _wide(x):
    """x in at least float32."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


_FUNCTIONS = {
    "tanh": _tanh_gelu,
    "erf": _explicit(exact_gelu, _erf_gradient),
    "quick": _explicit(_quick_gelu, _quick_gradient),
}


def apply_dense(layer, tokens):
    """layer(tokens) of a `keras.layers.Dense` without activation: (B, N, D) -> (B, N, E).

    Keras reshapes the tokens to a matrix of B * N rows. On a TPU that is a copy, forward and backward, unless N is a
    multiple of 8, which 197 is not. XLA multiplies three-dimensional tensors directly. Quantized kernels are left to
    Keras.
    """
    if not compiled_by_xla() or len(tokens.shape) != 3 or is_quantized(layer):
        return layer(tokens)
    return _product(tokens, layer.kernel, layer.bias)


def apply_units(layer, tokens, units: slice):
    """layer(tokens)[..., units], of which only these units are computed: (B, N, D) -> (B, N, E)."""
    if is_quantized(layer):
        return layer(tokens)[..., units]
    # Cast before they are sliced: OpenVINO's slice of a variable in float16 is wrong.
    return _product(tokens, *(ops.cast(weight, tokens.dtype)[..., units] for weight in (layer.kernel, layer.bias)))


def _product(tokens, kernel, bias):
    multiply = partial(ops.einsum, "bnd,de->bne") if compiled_by_xla() else ops.matmul
    return multiply(tokens, ops.cast(kernel, tokens.dtype)) + ops.cast(bias, tokens.dtype)
