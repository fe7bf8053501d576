"""Parts of messages: of thousands of classes and files a few names, and TensorFlow's errors in one line."""

import re
from collections.abc import Iterable


def first_names(names: Iterable, count: int = 5) -> str:
    """The first names, and how many more there are: "a, b, c, d, e and 875 more"."""
    names = [str(name) for name in names]
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def error_summary(error: BaseException) -> str:
    """The first line of a TensorFlow error, without the names of nodes and operations."""
    line = (str(getattr(error, "message", error)).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", line)
