"""Continuing a run with more images or classes: its images, and the head to start from."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import keras_vit
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.data.image_folder import split_by_hash
from keras_vit.recipes.recipe.file import write_recipe
from keras_vit_cli.commands.finetune import earlier_run
from keras_vit_cli.commands.finetune.earlier_run import (
    TRAINED,
    check_trained,
    continues,
    fit_new_rows,
    keep_trained,
    next_output,
    trained_images,
    with_classes,
    write_trained,
)


def vit(class_names, **arguments):
    sizes = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 12, "num_heads": 2}
    model = keras_vit.VisionTransformer(**sizes, num_classes=len(class_names), class_names=class_names, **arguments)
    random = np.random.default_rng(0)
    model.head.set_weights([random.normal(size=value.shape) for value in model.head.get_weights()])
    return model


@pytest.fixture
def data():
    """60 features of width 12, and labels of 3 classes."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 60)
    return (random.normal(size=(60, 12)) + 2 * np.eye(3, 12)[labels]).astype("float32"), labels


def test_a_head_of_new_rows_is_that_of_scikit_learn(data):
    model = vit(("a", "b", "c"))
    fit_new_rows(model, np.ones(3, bool), *data)
    expected = LogisticRegression(C=1 / earlier_run.PENALTY, max_iter=10_000, tol=1e-8).fit(*data)
    kernel, bias = model.head.get_weights()
    np.testing.assert_allclose(kernel, expected.coef_.T, atol=2e-4)
    np.testing.assert_allclose(bias - bias.mean(), expected.intercept_ - expected.intercept_.mean(), atol=1e-3)


def test_known_rows_are_kept_and_new_ones_at_the_optimum_beside_them(data):
    features, labels = data
    trained = vit(("a", "c"))
    model = with_classes(trained, ("a", "b", "c"))
    fit_new_rows(model, np.array([False, True, False]), features, labels)
    kernel, bias = model.head.get_weights()
    for new, old in ((0, 0), (2, 1)):
        assert np.array_equal(kernel[:, new], trained.head.get_weights()[0][:, old])
        assert bias[new] == trained.head.get_weights()[1][old]
    error = softmax(features @ kernel + bias, -1)[:, 1] - (labels == 1)
    np.testing.assert_allclose(features.T @ error + earlier_run.PENALTY * kernel[:, 1], 0, atol=1e-2)
    assert abs(error.sum()) < 1e-2
    images = np.random.default_rng(2).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    before, after = (np.asarray(each(images)) for each in (trained, with_classes(trained, ("c", "new"), -1e9)))
    np.testing.assert_allclose(after[:, 0], before[:, 1], atol=1e-6)
    assert (after[:, 1] < -1e8).all()


def test_which_heads_are_kept():
    assert continues(vit(("a", "b")), ("a", "b", "c")) and continues(vit(("a", "b", "c")), ("b", "c"))
    assert not continues(vit(("a", "b", "c")), ("a", "x")) and not continues(vit(("a", "b")), ("x", "y"))
    assert not continues(vit(("a", "b"), representation_size=8), ("a", "b", "c"))
    assert not continues(vit(("a", "b")).with_head(0), ("a", "b", "c"))


@pytest.mark.parametrize(
    "weights,expected",
    [
        (None, "runs/photos"),
        ("runs/photos", "runs/photos-2"),
        ("runs/photos/model.keras", "runs/photos-2"),
        ("runs/photos-2", "runs/photos-3"),
        ("runs/other", "runs/photos"),
        ("runs/photos-old", "runs/photos"),
    ],
)
def test_the_next_folder(tmp_path, monkeypatch, weights, expected):
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "photos-2", "other", "photos-old"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "recipe.json").touch()
    assert next_output(Path("runs/photos"), weights) == Path(expected)


def test_images_that_were_trained_on_stay_in_training(tmp_path):
    """By name, and by content under another name; with their groups."""
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = random.integers(0, 256, (9, 9, 3), "uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    run = tmp_path / "run"
    run.mkdir()
    small = RECIPES["finetune-small"]
    path = str(tmp_path / "photos")
    write_recipe(replace(small, data=replace(small.data, dataset=f"folder:{path}")), run / "recipe.json")
    images = [(name, f"{name}/{i}.png") for name in ("cat", "dog") for i in range(10)]
    splits = split_by_hash(images)
    training = {file for _, file in splits["train"]}
    names = [file for _, file in images]
    assert trained_images(run, path, names) == {file: f"{path}/{file}" for file in training}
    assert keep_trained(splits, {}, training) == {}
    moved = tmp_path / "elsewhere"
    shutil.copytree(path, moved)
    renamed, new = moved / "cat" / "renamed.png", moved / "cat" / "new.png"
    original = next(file for _, file in splits["train"] if file.startswith("cat"))
    (moved / original).rename(renamed)
    Image.new("RGB", (9, 9)).save(new)
    there = [(file.parent.name, file.relative_to(moved).as_posix()) for file in sorted(moved.rglob("*.png"))]
    names = [file for _, file in there]
    trained = trained_images(run, str(moved), names)
    assert trained.keys() == training - {original} | {"cat/renamed.png"}
    assert trained["cat/renamed.png"] == f"{path}/{original}"
    # The list of the run knows its images also where they are gone, or others have their names.
    write_trained(run, [f"{path}/{file}" for file in sorted(training)])
    check_trained(run)
    (tmp_path / "photos").rename(tmp_path / "gone")
    assert trained_images(run, str(moved), names) == trained
    with pytest.raises(ValueError, match=f"{len(training)} of the {len(training)} images .* are gone"):
        check_trained(run)
    (run / TRAINED).unlink()
    with pytest.raises(ValueError, match="photos"):
        trained_images(run, str(moved), names)
    tested = splits["test"][0][1]
    groups = {file: "one" if file in (tested, "cat/renamed.png") else file for _, file in there}
    after = keep_trained({"train": [], "test": there}, groups, trained)
    assert after[tested] == after["cat/renamed.png"] == "train" and after["cat/new.png"] == "test"
