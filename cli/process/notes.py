"""Assumptions about weights as one line of standard error, not as a Python warning. Standard library only."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of keras_vit.pixel_range, which imports Keras.
ASSUMED = ".*does not state how its pixels are scaled"
ARGUMENT = 'preprocessing="imagenet", "clip", "half" or a dict'
OPTION = "--preprocessing imagenet, clip, half or FILE.json to the command that uses the model"


@contextmanager
def printing_assumptions(with_flags: Callable[[str], str]) -> Iterator[None]:
    """Prints each warning of an assumed preprocessing once, with options in place of Python's arguments.

    Args:
        with_flags: From a message to one with the command's flags in place of a recipe's fields.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=ASSUMED)
        show, printed = warnings.showwarning, set()

        def show_once(message, category, *where, **more):
            if category.__name__ != "PixelRangeWarning":
                show(message, category, *where, **more)
            elif str(message) not in printed:
                printed.add(str(message))
                print(f"Note: {with_flags(str(message).replace(ARGUMENT, OPTION))}", file=sys.stderr)

        warnings.showwarning = show_once
        yield
