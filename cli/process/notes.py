"""Assumptions about weights as one line of standard error, not as a Python warning. Standard library only."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Of keras_vit.pixel_range and keras_vit.models.load_checkpoint, which import Keras.
CATEGORIES = ("PixelRangeWarning", "ImageSizeWarning")
ASSUMED = ".*does not state (how its pixels are scaled|the size of its images)"
ARGUMENT = 'preprocessing="imagenet", "clip", "half" or a dict'
SIZE_ARGUMENT, SIZE_OPTION = "pass image_size=...", "set it with keras-vit convert --image-size"
OPTION = "--preprocessing imagenet, clip, half or FILE.json to the command that uses the model"


@contextmanager
def printing_assumptions() -> Iterator[None]:
    """Prints each warning of an assumption once, with options in place of Python's arguments."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=ASSUMED)
        show, printed = warnings.showwarning, set()

        def show_once(message, category, *where, **more):
            if category.__name__ not in CATEGORIES:
                show(message, category, *where, **more)
            elif str(message) not in printed:
                printed.add(str(message))
                text = str(message).replace(ARGUMENT, OPTION).replace(SIZE_ARGUMENT, SIZE_OPTION)
                print(f"Note: {text}", file=sys.stderr)

        warnings.showwarning = show_once
        yield
