"""The names that `keras_vit.recipes` exports."""

import importlib
import pkgutil
import types

import pytest

from keras_vit import recipes


def test_submodules_hide_no_names():
    for module in pkgutil.iter_modules(recipes.__path__, "keras_vit.recipes."):
        importlib.import_module(module.name)
    names = set(recipes.__all__)
    assert "run" in names <= set(dir(recipes))
    assert not [name for name in names if isinstance(getattr(recipes, name), types.ModuleType)]
    with pytest.raises(AttributeError, match="nothing"):
        recipes.nothing  # noqa: B018
