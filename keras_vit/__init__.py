"""The Vision Transformer for Keras: layers, models, weights, and inspection."""

import importlib
import sys

from keras_vit.version import __version__ as __version__

# Everything is imported at once, so that Keras knows the classes of a .keras file, but not in the process of the
# command line: importing Keras takes seconds, and not all commands need it.
if "keras_vit_cli" not in sys.modules:
    from keras_vit.api import *  # noqa: F403
else:

    def __getattr__(name):
        return getattr(importlib.import_module("keras_vit.api"), name)
