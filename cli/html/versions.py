"""The line at the end of a page that says what made it."""

from importlib.metadata import version

import keras


def versions(*packages: str) -> str:
    """Installed packages with their versions, and the backend of Keras."""
    return ", ".join(f"{name} {version(name)}" for name in packages) + f"; backend {keras.backend.backend()}"
