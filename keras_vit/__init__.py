"""The Vision Transformer for Keras: layers, models, weights, and inspection."""

import importlib
import os
import sys
import warnings

from keras_vit.version import __version__ as __version__

# Everything is imported at once, so that Keras knows the classes of a .keras file, but not in the process of the
# command line: importing Keras takes seconds, and not all commands need it.
_is_lazy = "keras_vit_cli" in sys.modules
if not _is_lazy:
    from keras_vit.api import *  # noqa: F403


def __getattr__(name):
    from keras_vit.other_libraries import FUNCTIONS

    if name in FUNCTIONS:
        raise AttributeError(f"keras_vit has no {name}. Use {FUNCTIONS[name]}.")
    if _is_lazy:
        return getattr(importlib.import_module("keras_vit.api"), name)
    raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")


# PyPI's keras-vit, another project, installs into the same folder; its utils.py is a name that this package lacks.
_folder = os.path.dirname(__file__)
if os.path.exists(os.path.join(_folder, "utils.py")):
    warnings.warn(
        f"{_folder} has files of another project, keras-vit. Run: pip uninstall -y keras-vit && pip install "
        "--force-reinstall --no-deps vit-for-keras",
        stacklevel=2,
    )
