"""Folds: which image is in which, and the run of each."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from keras_vit.images.preprocessing import Preprocessing
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.configs.small_folder import Machine, fit_to_folder
from keras_vit.recipes.data.groups import ImageTable, read_table
from keras_vit_cli.commands.finetune.folds import assign_folds, fold_recipes, notes_on_folds, others


def images(**counts):
    return [(name, f"{name}/{i}.png") for name, count in counts.items() for i in range(count)]


def test_folds_have_equal_parts_of_each_class():
    named = images(cat=23, dog=50, rare=2)
    folds = assign_folds(named, {}, 5)
    assert list(folds) == [file for _, file in named] and folds == assign_folds(named, {}, 5)
    for name, sizes in (("cat", {4, 5}), ("dog", {10}), ("rare", {1})):
        assert set(Counter(folds[file] for of, file in named if of == name).values()) <= sizes
    assert max(Counter(folds.values()).values()) <= 17


def test_groups_stay_in_one_fold():
    named = images(cat=40, dog=40)
    groups = {file: f"{name} {i // 4}" for i, (name, file) in enumerate(named)}
    folds = assign_folds(named, groups, 5)
    pairs = {(groups[file], fold) for file, fold in folds.items()}
    assert len(pairs) == 20 and Counter(folds.values()) == {f"fold{i}": 16 for i in range(1, 6)}


def test_classes_of_one_group_and_unequal_folds_are_noted():
    named = images(cat=40, dog=40)
    groups = {file: "one" if name == "cat" else file for name, file in named}
    single, unequal = notes_on_folds(named, groups, assign_folds(named, groups, 4))
    assert single.startswith("All images of cat are in one group")
    assert re.search("have [0-9]+ to [45][0-9] images", unequal)
    assert not [*notes_on_folds(named, {}, assign_folds(named, {}, 4))]


@pytest.mark.parametrize("folds", [1, 0, -2, 9])
def test_impossible_numbers_of_folds(folds):
    with pytest.raises(ValueError, match=f"at least 2 folds, .*: 8. Received: --folds {folds}"):
        assign_folds(images(cat=8, dog=5), {}, folds)


def test_the_runs_leave_out_one_fold_each():
    small = RECIPES["finetune-small"]
    data = replace(small.data, train_split="fold1+fold2+fold3+fold4", test_split=None)
    recipe = replace(small, data=data, run=replace(small.run, folder="runs/x"))

    recipe = fit_to_folder(recipe, 400, Preprocessing(image_size=(224, 224)), 224, 12, Machine(True, 0.01, 0.01))
    folds = fold_recipes(recipe)
    assert list(folds) == ["fold1", "fold2", "fold3", "fold4"] and fold_recipes(replace(recipe, data=small.data)) == {}
    third = folds["fold3"]
    assert (third.data.train_split, third.data.test_split) == ("fold1+fold2+fold4", "fold3")
    assert third.run.folder == "runs/x/folds/fold3" and third.total_steps % third.run.epoch_steps == 0
    assert np.isclose(third.total_steps / recipe.total_steps, 0.75, atol=0.05)
    assert others("fold1", "fold1") == "" and others("train", "test") == "train"


def test_a_table_is_read_as_it_was_written(tmp_path):
    for table in (
        ImageTable({"a/ü.png": "x, y"}),
        ImageTable(splits={"a/1.png": "fold1"}),
        ImageTable({"1": "2"}, {"1": "3"}),
    ):
        table.write(tmp_path / "table.csv")
        assert read_table(str(tmp_path / "table.csv")) == table
