"""Where downloads and caches of keras_vit lie."""

import os
from pathlib import Path


def home() -> Path:
    """keras_vit in KERAS_HOME, by default in ~/.keras; it may not be there yet."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser() / "keras_vit"
