"""recipe.json, and the values of its fields, whether they come from Python, a file or the command line."""

import dataclasses
import errno
import json
import math
import os
import pickle
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

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
from keras_vit.recipes.recipe.errors import RecipeError, SeveralErrors, check_all
from keras_vit.recipes.recipe.file import read_recipe, read_run, write_recipe
from keras_vit.recipes.recipe.values import RANGES, check_sections, deferred_checks
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.runs.learning_rate_sweep import Sweep

# Numbers for which any finite value has a meaning, or that are checked together with others.
ANY = {"data.mean", "optimizer.staircase", "head_bias", "total_steps"}
INVALID = [
    ("optimizer.learning_rate", math.nan, "finite"),
    ("optimizer.global_clipnorm", 0.0, "above 0"),
    ("optimizer.ema_momentum", 1.0, r"in \[0, 1\)"),
    ("optimizer.staircase", (0.3, math.nan), "finite"),
    ("architecture.stochastic_depth", (0.1, 1.0), r"in \[0, 1\)"),
    ("architecture.stochastic_depth", "high", "a number or a list of numbers"),
    ("data.mean", (0.5, 0.5), "3 numbers"),
    ("data.image_size", (8, 0), "at least 1"),
    ("data.image_size", (8, 16, 3), "an integer or 2 numbers"),
    ("data.batch_size", 0, "at least 1"),
    ("data.batch_size", 64.0, "an integer"),
    ("data.batch_size", True, "an integer"),
    ("data.crop", "center", "one of 'inception', 'torchvision', 'resize', 'pad', 'simple', 'none'"),
    ("architecture.variant", "BiT-R51x1", "one of BiT-R50x1"),
    ("data.augment", 3, "a dataclass Augment"),
    ("run.resume", "yes", "true or false"),
]
BIT, DROPS = Architecture("BiT-R50x1"), Architecture(patch_dropout=0.5)
MIXED, MIXING = Data(augment=Augment(cutmix_alpha=1.0)), ["data.augment.cutmix_alpha"]


def change(section, name, value):
    """A copy of a recipe with another value of a field such as "data.augment.erasing"."""
    first, _, rest = name.partition(".")
    return replace(section, **{first: change(getattr(section, first), rest, value) if rest else value})


def numeric_fields(section, prefix=""):
    for field in dataclasses.fields(section):
        if dataclasses.is_dataclass(field.type):
            yield from numeric_fields(getattr(section, field.name), f"{prefix}{field.name}.")
        elif {int, float} & {field.type, *get_args(field.type)}:
            yield prefix + field.name


@pytest.mark.parametrize("name,value,message", INVALID)
def test_invalid_values_from_python_and_files(name, value, message, tmp_path):
    with pytest.raises(RecipeError, match=message) as raised:
        change(Supervised(), name, value)
    assert list(raised.value.received) == [name] and repr(raised.value.received[name]) == repr(value)  # NaN, too
    with deferred_checks():
        recipe = change(Supervised(), name, value)
    write_recipe(recipe, tmp_path / "recipe.json")
    with pytest.raises(ValueError, match=f"recipe.json.*{message}.*{name}="):
        read_recipe(tmp_path / "recipe.json")


STAIRCASES = [(), (0.6, 0.3), (30.0, 60.0)]
COMBINATIONS = [
    (Augment, {"randaugment_layers": 2, "autoaugment": "imagenet"}, ["randaugment_layers", "autoaugment"]),
    (Augment, {"autoaugment": "cifar10", "three_augment": True}, ["autoaugment", "three_augment"]),
    (Augment, {"randaugment_magnitude": 10.5, "randaugment_policy": "timm"}, ["randaugment_magnitude"]),
    (Data, {"crop": "resize", "resize_size": 100}, ["image_size", "resize_size"]),
    (Data, {"crop": "resize", "image_size": (32, 64)}, ["image_size", "resize_size"]),
    (Data, {"crop": "resize", "image_size": (640, 64)}, ["image_size", "resize_size"]),
    (Data, {"crop": "resize", "image_size": (32, 64), "resize_size": (30, 80)}, ["image_size", "resize_size"]),
    (Data, {"scaled_decoding": True, "crop": "none"}, ["scaled_decoding", "crop"]),
    (Data, {"scaled_decoding": True, "cache": True}, ["scaled_decoding", "cache"]),
    (Optimizer, {"weight_decay": 0.1}, ["name", "weight_decay"]),
    *((Optimizer, {"decay": "staircase", "staircase": stairs}, ["staircase"]) for stairs in STAIRCASES),
    (Architecture, {"variant": "BiT-R50x1", "dropout": 0.1, "pooling": "gap"}, ["pooling", "dropout"]),
    (Supervised, {"total_epochs": 3.0}, ["total_steps", "total_epochs"]),
    (Supervised, {"loss": "binary", "label_smoothing": 0.1}, ["loss", "label_smoothing"]),
    (Supervised, {"loss": "sigmoid", "label_smoothing": 0.5}, ["label_smoothing"]),
    (Distillation, {"architecture": BIT}, ["architecture.variant"]),
    *((kind, {"architecture": BIT}, ["architecture.variant"]) for kind in (MaskedPatch, MaskedAutoencoder)),
    *((kind, {"architecture": DROPS}, ["architecture.patch_dropout"]) for kind in (MaskedPatch, MaskedAutoencoder)),
    *((kind, {"data": MIXED}, MIXING) for kind in (MaskedPatch, MaskedAutoencoder)),
    (
        MaskedAutoencoder,
        {"architecture": Architecture(position_embedding="relative")},
        ["architecture.position_embedding"],
    ),
    (MaskedAutoencoder, {"architecture": Architecture("R50+B/16")}, ["architecture.variant"]),
    (MaskedAutoencoder, {"masked_fraction": 1.0}, ["masked_fraction"]),
    (
        MaskedPatch,
        {"architecture": Architecture("Ti/2"), "target": "downsampled_color"},
        ["architecture.variant", "target"],
    ),
    (MaskedPatch, {"masked_fraction": 0.8, "replaced_fraction": 0.3}, ["masked_fraction", "replaced_fraction"]),
    (MaskedAutoencoder, {"decoder_width": 100}, ["decoder_width", "decoder_heads"]),
    (MaskedAutoencoder, {"decoder_width": 30, "decoder_heads": 3}, ["decoder_width", "decoder_heads"]),
]


@pytest.mark.parametrize("kind,fields,names", COMBINATIONS)
def test_fields_that_exclude_each_other(kind, fields, names):
    with pytest.raises(RecipeError) as raised:
        kind(**fields)
    assert list(raised.value.received) == [kind.place + name for name in names]


def test_what_is_advised_can_be_used():
    for kind, fields, _ in COMBINATIONS:
        with pytest.raises(RecipeError) as raised:
            kind(**fields)
        for use in raised.value.use:
            with deferred_checks():
                recipe = kind(**fields)
                for name, value in use.items():
                    recipe = change(recipe, name.removeprefix(kind.place), value)
            check_sections(recipe)


@pytest.mark.parametrize(
    "size,written,sides", [(24, 24, (24, 24)), ((24, 24), 24, (24, 24)), ([8, 24], [8, 24], (8, 24))]
)
def test_a_square_is_one_integer_however_it_is_given(size, written, sides, tmp_path):
    """Recipes of runs that were begun with one integer are the same."""
    recipe = Supervised(data=Data(image_size=size))
    write_recipe(recipe, tmp_path / "recipe.json")
    assert json.loads((tmp_path / "recipe.json").read_text())["data"]["image_size"] == written
    assert read_recipe(tmp_path / "recipe.json") == recipe and recipe.data.input_size == sides


def test_all_that_is_wrong_is_reported_together():
    with deferred_checks():
        recipe = Supervised(
            data=Data(image_size=0, augment=Augment(erasing=2.0)), optimizer=Optimizer(weight_decay=0.1), head_bias="x"
        )
    with pytest.raises(SeveralErrors) as raised:
        check_sections(recipe)
    names = [next(iter(error.received)) for error in raised.value.errors]
    assert names == ["data.augment.erasing", "data.image_size", "optimizer.name", "head_bias"]
    with pytest.raises(RecipeError):  # checks are on again
        Data(image_size=0)


def test_message_of_an_error():
    error = RecipeError("Two exclude each other.", {"a.b": 1, "c": (0.5,)}, [{"a.b": 0}, {"c": (), "d": "x"}])
    expected = "Two exclude each other. Received: {}, {}. Use {}, or {} and {}."
    assert str(error) == expected.format("a.b=1", "c=(0.5,)", "a.b=0", "c=()", "d='x'")
    assert error.text(lambda field, _: f"<{field}>") == expected.format("<a.b>", "<c>", "<a.b>", "<c>", "<d>")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_every_number_has_a_range():
    kinds = (MaskedPatch, MaskedAutoencoder, Supervised, Distillation)
    numbers = {name for kind in kinds for name in numeric_fields(kind())} | {"learning_rates", "seeds"}
    assert numbers == RANGES.keys() | ANY


def test_lists_and_numbers_of_numpy_are_valid():
    Supervised(Architecture(depth=np.int64(2)), optimizer=Optimizer(learning_rate=np.float32(0.1)))
    Distillation(data=Data(mean=[0, 0, 0]), total_steps=None, total_epochs=3)


@pytest.mark.parametrize(
    "fields", [{"seeds": ()}, {"learning_rates": ()}, {"learning_rates": (-0.1,)}, {"seeds": (-1,)}, {"metric": "loss"}]
)
def test_invalid_sweeps(fields):
    with pytest.raises(RecipeError) as raised:
        Sweep(**fields)
    assert fields.items() <= raised.value.received.items()


@pytest.mark.parametrize(
    "recipe",
    [
        MaskedPatch(target="pixels", run=Run(seed=3)),
        MaskedAutoencoder(normalize_targets=False, decoder_width=16),
        Supervised(
            data=Data(mean=(0.1, 0.2, 0.3), augment=Augment(mixup_alpha=0.2)), total_epochs=90.0, total_steps=None
        ),
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
    "group,moved", [("runs/x/groups.csv", "{}/groups.csv"), ("a/groups.csv", None), (r"p\d+", None)]
)
def test_the_run_of_a_folder_that_was_moved(group, moved, tmp_path):
    """A table of groups that it has moved with it; another one stays where it is."""
    recipe = Supervised(data=Data("folder:photos", group=group), run=Run(folder="runs/x/"))
    write_recipe(recipe, tmp_path / "recipe.json")
    found = read_run(tmp_path)
    assert found.data.group == (moved.format(tmp_path) if moved else group) and found.run.folder == str(tmp_path)


@pytest.mark.parametrize(
    "edit,message",
    [
        (lambda values: values.pop("kind"), "'kind' must be one of MaskedPatch"),
        (lambda values: values.update(kind=["Supervised"]), "is not a recipe"),
        (lambda values: values["optimizer"].update(learning_rat=1), "optimizer: .*'learning_rat'.*'learning_rate'"),
        (lambda values: values["data"].update(xyz=1), "data: unknown fields: 'xyz'"),
        (lambda values: values["optimizer"].update(learning_rate=math.inf), "finite.*learning_rate=inf"),
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


def test_fields_that_an_older_version_did_not_write_have_their_defaults(tmp_path):
    file = tmp_path / "recipe.json"
    write_recipe(Supervised(total_steps=1), file)
    values = json.loads(file.read_text())
    del values["class_weight"], values["run"]["monitor"], values["run"]["restore_best_weights"]
    file.write_text(json.dumps(values))
    assert read_recipe(file) == Supervised(total_steps=1)


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
    with pytest.raises(SeveralErrors) as raised:
        check_all(lambda: fail(RecipeError("c.")), lambda: check_all(*checks))
    assert list(map(str, raised.value.errors)) == ["c.", "a", "b"] and str(raised.value) == "c.\na\nb"
    with pytest.raises(TypeError, match="a mistake"):
        check_all(lambda: fail(TypeError("a mistake")), *checks)
    with pytest.raises(OSError, match="^b$"):
        check_all(*checks[1:3])


@pytest.mark.parametrize("folder", ["{}", "ram://full"])
def test_failed_write_keeps_the_previous_content(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("metrics.json", "old")  # without a folder
    file = f"{folder.format(tmp_path)}/metrics.json"
    tf.io.gfile.makedirs(os.path.dirname(file))
    write_file(file, b"new")
    with pytest.raises(OSError, match=r"nowhere/a\.txt"):
        write_file(tmp_path / "nowhere" / "a.txt", "")

    def full(*arguments, **_):
        if "://" in folder:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"metrics\.json .*No space left on device"):
        write_file(file, "newer")
    assert tf.io.gfile.GFile(file, "rb").read() == b"new"
    assert tf.io.gfile.listdir(os.path.dirname(file)) == ["metrics.json"]
