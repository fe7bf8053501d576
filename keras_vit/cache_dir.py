"""The folder of downloads and caches."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Absolute path of keras_vit in KERAS_HOME, by default in ~/.keras; it may not exist yet."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute() / "keras_vit"
