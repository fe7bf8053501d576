"""Loading and saving checkpoints: all weights, or an error that lists which do not match."""

from importlib import import_module

# Imported on first use: most programs that import keras_vit read no file, and the tables take time to build.
_MODULES = {
    "Checkpoint": "checkpoint",
    "LoadReport": "loading",
    "download": "downloads",
    "load_weights": "loading",
    "open_checkpoint": "opening",
    "published_names": "published",
    "save": "saving",
}
__all__ = list(_MODULES)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(_MODULES)
