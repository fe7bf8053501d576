"""The kind of arithmetic that a graph is traced for, which decides the form of some of its parts."""

from contextlib import contextmanager
from contextvars import ContextVar

FLOAT = "float32"  # as the layers of `keras_vit.layers`
HALF = "float16"  # no square and no sum passes 65,504, the largest float16
INTEGERS = "int8"  # only operations that XNNPACK runs in 8 bits, see `integer_forms`
_ARITHMETIC = ContextVar("arithmetic", default=FLOAT)


@contextmanager
def arithmetic(name: str):
    """`FLOAT`, `HALF` or `INTEGERS`: the form of the graph that is traced within."""
    token = _ARITHMETIC.set(name)
    try:
        yield
    finally:
        _ARITHMETIC.reset(token)


def current_arithmetic() -> str:
    """The name of the innermost `arithmetic`, `FLOAT` outside of all."""
    return _ARITHMETIC.get()
