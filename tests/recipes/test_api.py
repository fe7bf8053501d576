"""The names that `keras_vit.recipes` exports."""

import os
import subprocess
import sys

import pytest

from keras_vit import recipes

pytestmark = pytest.mark.slow

# With another backend: on TensorFlow, Keras itself imports it.
CODE = """
import gc, importlib, pkgutil, sys, types
gc.disable()  # faster imports
from keras_vit import recipes
from keras_vit.recipes import Data, MaskedPatch, Supervised
print("tensorflow" in sys.modules)
for module in pkgutil.iter_modules(recipes.__path__, "keras_vit.recipes."):
    importlib.import_module(module.name)
from keras_vit.recipes import *
print([name for name in recipes.__all__ if isinstance(globals()[name], types.ModuleType)], callable(run))
"""


def test_recipes_import_no_tensorflow_and_submodules_hide_no_functions():
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    assert done.stdout.split("\n") == ["False", "[] True", ""]


def test_unknown_names_are_attribute_errors():
    assert set(recipes.__all__) <= set(dir(recipes))
    with pytest.raises(AttributeError, match="keras_vit.recipes attribute nothing"):
        recipes.nothing  # noqa: B018
