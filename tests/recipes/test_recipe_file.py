import json
from dataclasses import replace

import pytest

from keras_vit.recipes.recipe import (
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
    write_recipe(recipe, tmp_path / "recipe.json")
    assert read_recipe(tmp_path / "recipe.json") == recipe
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]


def test_existing_file_is_replaced(tmp_path):
    for steps in (1, 2):
        write_recipe(Supervised(total_steps=steps), tmp_path / "recipe.json")
    assert read_recipe(tmp_path / "recipe.json").total_steps == 2


@pytest.mark.parametrize(
    "change,message",
    [
        (
            lambda values: values.pop("kind"),
            "its 'kind' must be one of MaskedPatch, MaskedAutoencoder, Supervised, Distillation",
        ),
        (lambda values: values.pop("loss"), "missing fields: 'loss'. Fix the file, or use the version"),
        (
            lambda values: values["optimizer"].update(learning_rat=1),
            "FILE: optimizer: unknown fields: 'learning_rat'. Perhaps you meant 'learning_rate'. Fix the file",
        ),
        (lambda values: values["data"].update(xyz=1), "FILE: data: unknown fields: 'xyz'. Fix the file"),
    ],
)
def test_unknown_and_missing_fields_raise(change, message, tmp_path):
    file = tmp_path / "recipe.json"
    write_recipe(Supervised(), file)
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message.replace("FILE", str(file))):
        read_recipe(file)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"", b"\xff"])
def test_invalid_files_raise(content, tmp_path):
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a recipe: .* Fix the file.$"):
        read_recipe(tmp_path / "recipe.json")


def test_folder_raises(tmp_path):
    (tmp_path / "recipe.json").mkdir()
    with pytest.raises(OSError, match="The recipe .*recipe.json cannot be read: .*directory"):
        read_recipe(tmp_path / "recipe.json")


def test_recipes_are_immutable():
    recipe = Supervised()
    with pytest.raises(AttributeError):
        recipe.total_steps = 3
    assert replace(recipe, total_steps=3).total_steps == 3
