"""Weights in and out. All of them, or an error that says which do not fit."""

from importlib import import_module

# Imported when they are asked for: most programs that import keras_vit read no file, and the tables take time.
_HOMES = {
    "Checkpoint": "checkpoint",
    "LoadReport": "match",
    "download": "downloads",
    "load_weights": "loading",
    "open_checkpoint": "checkpoint",
    "published_names": "published",
    "save": "saving",
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__():
    return sorted(_HOMES)
