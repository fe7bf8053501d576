"""Lists of names in messages: a dataset has thousands of classes and files, of which a few show what is meant."""

from collections.abc import Iterable


def first_names(names: Iterable, count: int = 5) -> str:
    """The first names, and how many more there are: "a, b, c, d, e and 875 more"."""
    names = [str(name) for name in names]
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
