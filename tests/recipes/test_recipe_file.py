import json
from dataclasses import replace

import pytest

from keras_vit.recipes.recipe import Augment, Data, Distillation, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.recipe_file import read_recipe, write_recipe


@pytest.mark.parametrize(
    "recipe",
    [
        MaskedPatch(target="pixels", run=Run(seed=3)),
        Supervised(data=Data(mean=(0.1, 0.2, 0.3), augment=Augment(mixup_alpha=0.2)), total_epochs=90.0),
        Distillation(teacher="teacher.keras", optimizer=Optimizer(staircase=(0.5,), global_clipnorm=None)),
    ],
)
def test_a_recipe_comes_back_from_its_file(recipe, tmp_path):
    write_recipe(recipe, tmp_path / "recipe.json")
    assert read_recipe(tmp_path / "recipe.json") == recipe
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]


def test_a_second_recipe_takes_the_place_of_the_first(tmp_path):
    for steps in (1, 2):
        write_recipe(Supervised(total_steps=steps), tmp_path / "recipe.json")
    assert read_recipe(tmp_path / "recipe.json").total_steps == 2


@pytest.mark.parametrize(
    "change,message",
    [
        (lambda values: values.pop("kind"), "its 'kind' must be one of MaskedPatch, Supervised, Distillation"),
        (lambda values: values.pop("loss"), "another version.*missing: loss"),
        (lambda values: values["data"].update(color=1), "recipe.json: data was written.*Unknown fields: color"),
    ],
)
def test_a_file_that_does_not_fit_is_explained(change, message, tmp_path):
    file = tmp_path / "recipe.json"
    write_recipe(Supervised(), file)
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        read_recipe(file)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"", b"\xff"])
def test_what_is_no_recipe_is_refused(content, tmp_path):
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a recipe"):
        read_recipe(tmp_path / "recipe.json")


def test_a_folder_is_no_recipe(tmp_path):
    (tmp_path / "recipe.json").mkdir()
    with pytest.raises(OSError, match="The recipe .*recipe.json cannot be read: .*directory"):
        read_recipe(tmp_path / "recipe.json")


def test_a_recipe_cannot_be_changed_by_accident():
    recipe = Supervised()
    with pytest.raises(AttributeError):
        recipe.total_steps = 3
    assert replace(recipe, total_steps=3).total_steps == 3
