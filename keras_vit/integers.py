"""Integers in arguments, including NumPy's, which neither Keras nor JSON can serialize."""

from numbers import Integral


def is_integer(value, minimum: int = 1) -> bool:
    """Whether a value is an integer of at least `minimum`; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def python_integers(value):
    """NumPy's integers as Python's, also inside tuples, lists and dicts; everything else unchanged."""
    if isinstance(value, dict):
        return {name: python_integers(inner) for name, inner in value.items()}
    if type(value) in (tuple, list):
        return type(value)(python_integers(inner) for inner in value)
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
