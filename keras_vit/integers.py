"""Integers in arguments: Python's, and NumPy's, of which Keras and JSON take none."""

from numbers import Integral


def is_whole(value, least: int = 1) -> bool:
    """Whether this is an integer of at least `least`; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def plain(value):
    """NumPy's integers as Python's, in tuples, lists and dicts too; all else as it is."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if type(value) in (tuple, list):
        return type(value)(plain(inner) for inner in value)
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
