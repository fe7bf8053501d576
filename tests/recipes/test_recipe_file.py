"""recipe.json, and the values of its fields, whether they come from Python, a file or the command line."""

import dataclasses
import json
import math
import os
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes import fit
from keras_vit.recipes.check_all import check_all
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe import (
    Architecture,
    Augment,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Run,
    Supervised,
)
from keras_vit.recipes.recipe_file import read_recipe, write_recipe
from keras_vit.recipes.recipe_values import RANGES, check_values
from keras_vit.recipes.remote_files import write_file
from keras_vit_cli.main import main

# Numbers for which any finite value has a meaning, or that are checked together with others.
ANY = {"data.mean", "optimizer.staircase", "head_bias", "total_steps"}
INVALID = [
    ("optimizer.learning_rate", math.nan, "finite"),
    ("optimizer.global_clipnorm", 0.0, "above 0"),
    ("optimizer.ema_momentum", 1.0, r"in \[0, 1\)"),
    ("optimizer.layer_decay", 0.0, r"in \(0, 1\]"),
    ("optimizer.staircase", (0.3, math.nan), "finite"),
    ("architecture.stochastic_depth", (0.1, 1.0), r"in \[0, 1\)"),
    ("architecture.stochastic_depth", "high", "a number or a list of numbers"),
    ("data.augment.mixup_alpha", -0.1, "at least 0"),
    ("data.std", (0.5, 0.0, 0.5), r"in \(0, 1\]"),
    ("data.mean", (0.5, 0.5), "3 numbers"),
    ("data.batch_size", 0, "at least 1"),
    ("data.batch_size", 64.0, "an integer"),
    ("data.batch_size", True, "an integer"),
    ("data.labels_per_class", "1", "an integer or None"),
    ("data.crop", "center", "one of 'inception', 'resize', 'pad', 'simple', 'none'"),
    ("data.augment", 3, "of the type Augment"),
    ("run.resume", "yes", "true or false"),
    ("run.seed", -1, r"in \[0, 4294967296\)"),
    ("run.folder", 3, "a string or None"),
    ("total_epochs", -1.0, "above 0"),
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
    recipe = change(Supervised(run=Run(folder=str(tmp_path / "run"))), name, value)
    for function in (check_values, fit.train):
        with pytest.raises(ValueError, match=f"^{name} must be {message}. Received: "):
            function(recipe)
    write_recipe(recipe, tmp_path / "recipe.json")
    with pytest.raises(ValueError, match=f"recipe.json: {name} must be {message}"):
        read_recipe(tmp_path / "recipe.json")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command,prefix", [("train", "--optimizer"), ("sweep", "--recipe.optimizer")])
@pytest.mark.parametrize("option", ["learning-rate=-1", "ema-momentum=nan"])
def test_invalid_options(command, prefix, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, "digits-finetune", f"{prefix}.{option}"]) == 1
    assert capsys.readouterr().err.startswith(f"keras-vit: {prefix}.{option.partition('=')[0]} must be ")
    assert not list(tmp_path.iterdir())


def test_every_number_has_a_range():
    kinds = (MaskedPatch, MaskedAutoencoder, Supervised, Distillation)
    assert {name for kind in kinds for name in numeric_fields(kind())} == RANGES.keys() | ANY


def test_recipes_and_numbers_of_numpy_are_valid():
    for recipe in RECIPES.values():
        check_values(recipe)
    check_values(Supervised(Architecture(depth=np.int64(2)), optimizer=Optimizer(learning_rate=np.float32(0.1))))
    check_values(Distillation(data=Data(mean=[0, 0, 0]), total_epochs=3))


@pytest.mark.parametrize(
    "recipe",
    [
        MaskedPatch(target="pixels", run=Run(seed=3)),
        MaskedAutoencoder(normalize_targets=False, decoder_width=8),
        Supervised(data=Data(mean=(0.1, 0.2, 0.3), augment=Augment(mixup_alpha=0.2)), total_epochs=90.0),
        Distillation(teacher="teacher.keras", optimizer=Optimizer(staircase=(0.5,), global_clipnorm=None)),
    ],
)
def test_round_trip(recipe, tmp_path):
    write_recipe(Supervised(total_steps=1), tmp_path / "recipe.json")
    write_recipe(recipe, tmp_path / "recipe.json")  # replaces the first
    assert read_recipe(tmp_path / "recipe.json") == recipe
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]
    with pytest.raises(AttributeError):
        recipe.total_steps = 3


@pytest.mark.parametrize(
    "edit,message",
    [
        (lambda values: values.pop("kind"), "'kind' must be one of MaskedPatch"),
        (lambda values: values.update(kind=["Supervised"]), "is not a recipe"),
        (lambda values: values.pop("loss"), "missing fields: 'loss'"),
        (lambda values: values["optimizer"].update(learning_rat=1), "optimizer: .*'learning_rat'.*'learning_rate'"),
        (lambda values: values["data"].update(xyz=1), "data: unknown fields: 'xyz'"),
        (lambda values: values["optimizer"].update(learning_rate=math.inf), "learning_rate must be finite"),  # Infinity
    ],
)
def test_invalid_fields_of_a_file_raise(edit, message, tmp_path):
    file = tmp_path / "recipe.json"
    write_recipe(Supervised(), file)
    values = json.loads(file.read_text())
    edit(values)
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=f"{file}.*{message}"):
        read_recipe(file)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"", b"\xff", b"[" * 100_000, b'{"kind": ' * 100_000])
def test_files_that_are_no_recipes_raise(content, tmp_path):
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a recipe"):
        read_recipe(tmp_path / "recipe.json")


def test_folder_in_place_of_a_file_raises(tmp_path):
    with pytest.raises(OSError, match=f"{tmp_path} cannot be read"):
        read_recipe(tmp_path)


def test_all_errors_are_reported_once():
    def fail(error):
        raise error

    checks = [lambda: fail(ValueError("a")), lambda: 1, lambda: fail(OSError("b")), lambda: fail(ValueError("a"))]
    assert check_all(lambda: 1, lambda: "two") == [1, "two"]
    for more, error, message in (
        ([], ValueError, "^a\nb$"),
        ([lambda: fail(ValueError("c\na"))], ValueError, "^c\na\nb$"),
        ([lambda: fail(TypeError("a mistake"))], TypeError, "a mistake"),
    ):
        with pytest.raises(error, match=message):
            check_all(*more, *checks)
    with pytest.raises(OSError, match="^b$"):
        check_all(*checks[1:3])


def test_failed_write_keeps_the_previous_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("metrics.json", "old")  # without a folder
    file = tmp_path / "metrics.json"
    write_file(str(file), b"new")
    assert file.read_bytes() == b"new"
    with pytest.raises(OSError, match=r"nowhere/a\.txt"):
        write_file(tmp_path / "nowhere" / "a.txt", "")

    def full(*arguments, **_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    with pytest.raises(OSError, match=r"metrics\.json .*No space left on device"):
        write_file(file, "newer")
    assert file.read_bytes() == b"new" and os.listdir(tmp_path) == ["metrics.json"]
