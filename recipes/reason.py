"""Errors of TensorFlow in a line."""

import re


def reason(error) -> str:
    """The first line of an error of TensorFlow, without the graph around it."""
    line = (str(getattr(error, "message", error)).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", line)
