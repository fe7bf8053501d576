"""Values that cannot be meant are refused, whether they come from Python, a file or the command line."""

import dataclasses
import json
import math
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest

from keras_vit.recipes import fit
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import (
    Architecture,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Supervised,
)
from keras_vit.recipes.recipe_file import read_recipe, write_recipe
from keras_vit.recipes.recipe_values import RANGES, check_values
from keras_vit_cli.main import main

# Numbers for which any finite value has a meaning, or that are checked together with others.
ANY = {"data.mean", "optimizer.staircase", "head_bias", "total_steps"}
INVALID = [
    ("optimizer.learning_rate", -1e-3, "must be at least 0"),
    ("optimizer.learning_rate", math.nan, "must be finite"),
    ("optimizer.global_clipnorm", 0.0, "must be above 0"),
    ("optimizer.global_clipnorm", -1.0, "must be above 0"),
    ("optimizer.global_clipnorm", math.nan, "must be finite"),
    ("optimizer.ema_momentum", math.nan, "must be finite"),
    ("optimizer.ema_momentum", 1.0, r"must be in \[0, 1\)"),
    ("optimizer.layer_decay", 0.0, r"must be in \(0, 1\]"),
    ("optimizer.beta_2", 1.0, r"must be in \[0, 1\)"),
    ("optimizer.weight_decay", math.inf, "must be finite"),
    ("optimizer.staircase", (0.3, math.nan), "must be finite"),
    ("architecture.stochastic_depth", -0.1, r"must be in \[0, 1\)"),
    ("architecture.stochastic_depth", 1.0, r"must be in \[0, 1\)"),
    ("architecture.stochastic_depth", (0.1, 1.0), r"must be in \[0, 1\)"),
    ("architecture.stochastic_depth", "high", "must be a number or a list of numbers"),
    ("architecture.dropout", 1.5, r"must be in \[0, 1\)"),
    ("architecture.patch_dropout", 1.0, r"must be in \[0, 1\)"),
    ("data.max_corrupt", math.nan, "must be finite"),
    ("data.max_corrupt", -0.1, r"must be in \[0, 1\]"),
    ("data.augment.mixup_alpha", -0.1, "must be at least 0"),
    ("data.std", (0.5, 0.0, 0.5), r"must be in \(0, 1\]"),
    ("data.mean", (0.5, math.nan, 0.5), "must be finite"),
    ("data.mean", (0.5, 0.5), "must be 3 numbers"),
    ("data.batch_size", 0, "must be at least 1"),
    ("data.batch_size", "64", "must be an integer"),
    ("data.batch_size", 64.0, "must be an integer"),
    ("data.batch_size", True, "must be an integer"),
    ("data.labels_per_class", "1", "must be an integer or None"),
    ("data.crop", "center", "must be one of 'inception', 'resize', 'pad', 'simple', 'none'"),
    ("data.augment", 3, "must be of the type Augment"),
    ("run.resume", "yes", "must be true or false"),
    ("run.seed", -1, r"must be in \[0, 4294967296\)"),
    ("run.folder", 3, "must be a string or None"),
    ("label_smoothing", 1.0, r"must be in \[0, 1\)"),
    ("total_epochs", -1.0, "must be above 0"),
]


def change(section, name, value):
    """A copy of a recipe with another value of a field such as "data.augment.erasing"."""
    first, _, rest = name.partition(".")
    return replace(section, **{first: change(getattr(section, first), rest, value) if rest else value})


def numeric_fields(section, prefix=""):
    for name, hint in get_type_hints(type(section)).items():
        if dataclasses.is_dataclass(hint):
            yield from numeric_fields(getattr(section, name), f"{prefix}{name}.")
        elif {int, float} & {hint, *get_args(hint)}:
            yield prefix + name


@pytest.mark.parametrize("name,value,message", INVALID)
def test_invalid_values_from_python_and_files(name, value, message, tmp_path):
    recipe = change(Supervised(run=replace(Supervised().run, folder=str(tmp_path / "run"))), name, value)
    for function in (check_values, fit.train):
        with pytest.raises(ValueError, match=f"^{name} {message}. Received: "):
            function(recipe)
    write_recipe(recipe, tmp_path / "recipe.json")
    with pytest.raises(ValueError, match=f"recipe.json: {name} {message}. Received: .*Fix the file."):
        read_recipe(tmp_path / "recipe.json")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "option,value",
    [("learning-rate", "-1"), ("learning-rate", "nan"), ("global-clipnorm", "0"), ("ema-momentum", "nan")],
)
@pytest.mark.parametrize("command,prefix", [("train", "--optimizer"), ("sweep", "--recipe.optimizer")])
def test_invalid_options(command, prefix, option, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, "digits-finetune", f"{prefix}.{option}={value}"]) == 1
    assert capsys.readouterr().err.startswith(f"keras-vit: {prefix}.{option} must be ")
    assert not list(tmp_path.iterdir())


def test_every_number_has_a_range():
    kinds = (MaskedPatch, MaskedAutoencoder, Supervised, Distillation)
    names = {name for kind in kinds for name in numeric_fields(kind())}
    assert names == RANGES.keys() | ANY


def test_recipes_and_numbers_of_numpy_are_valid():
    for recipe in RECIPES.values():
        check_values(recipe)
    check_values(Supervised(Architecture(depth=np.int64(2)), optimizer=Optimizer(learning_rate=np.float32(0.1))))
    check_values(Distillation(data=Data(mean=[0, 0, 0]), total_epochs=3))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"kind": ' * 100_000, '{"kind": ["Supervised"]}'])
def test_files_that_are_no_recipes(text, tmp_path):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match="is not a recipe: "):
        read_recipe(tmp_path / "recipe.json")


def test_numbers_that_json_does_not_have(tmp_path):
    write_recipe(Supervised(), tmp_path / "recipe.json")
    values = json.loads((tmp_path / "recipe.json").read_text())
    values["optimizer"]["learning_rate"] = math.inf  # written as Infinity, which Python reads
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="optimizer.learning_rate must be finite. Received: inf"):
        read_recipe(tmp_path / "recipe.json")
