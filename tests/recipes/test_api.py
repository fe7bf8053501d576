"""The names that `keras_vit.recipes` exports."""

import os
import subprocess
import sys

import pytest

from keras_vit import recipes

pytestmark = pytest.mark.slow

IMPORT_ALL = """
import importlib, pkgutil, types
from keras_vit import recipes
for module in pkgutil.iter_modules(recipes.__path__, "keras_vit.recipes."):
    importlib.import_module(module.name)
from keras_vit.recipes import *
print([name for name in recipes.__all__ if isinstance(globals()[name], types.ModuleType)], callable(run))
"""
DATACLASSES_ONLY = """
import sys
from keras_vit.recipes import Data, MaskedPatch, Supervised
print("tensorflow" in sys.modules)
"""


def output_of(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_importing_recipes_imports_no_tensorflow():
    assert output_of(DATACLASSES_ONLY, KERAS_BACKEND="jax") == "False"


def test_exported_functions_are_not_hidden_by_submodules():
    assert output_of(IMPORT_ALL) == "[] True"


def test_unknown_names_are_attribute_errors():
    assert set(recipes.__all__) <= set(dir(recipes))
    with pytest.raises(AttributeError, match="'keras_vit.recipes' has no attribute 'nothing'"):
        recipes.nothing  # noqa: B018
