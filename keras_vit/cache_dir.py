"""Where downloads and caches of keras_vit lie."""

import os
from pathlib import Path


def home() -> Path:
    """The absolute path of keras_vit in KERAS_HOME, by default in ~/.keras; it may not be there yet."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute() / "keras_vit"
