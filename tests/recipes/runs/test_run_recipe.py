"""A recipe from start to end: what it writes, in which order, and what another call of it does."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import binomtest

import keras_vit
from keras_vit.recipes import run_recipe
from keras_vit.recipes.data import ImageDataset
from keras_vit.recipes.runs import supervised as supervised_training
from keras_vit.recipes.runs.supervised import compile_for_evaluation

FILES = {"recipe.json", "run.json", "log.csv", "model.keras", "model_card.md", "metrics.json"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def in_folder(recipe, folder, **run):
    return replace(recipe, run=replace(recipe.run, folder=str(folder), resume=True, **run))


@pytest.mark.slow
def test_finished_run_is_not_trained_again(masked, folder):
    recipe = in_folder(masked, folder)
    metrics = run_recipe.run(recipe)
    assert metrics["loss"] > 0 and metrics.keys() >= {"top1", "learning_rate"}
    assert {file.name for file in folder.iterdir() if not file.name.startswith(("step-", "."))} == FILES
    again = run_recipe.run(recipe)  # no steps remain
    assert [again[name] for name in ("loss", "top1")] == pytest.approx([metrics[name] for name in ("loss", "top1")])
    assert json.loads((folder / "metrics.json").read_text()) == again == run_recipe.run_unless_finished(recipe)
    file = folder / "metrics.json"
    for content in ("{", "[]", "null", '{"top1": 0.5}', '{"loss": "low"}', '{"loss": null}', "\xff"):
        file.write_text(content, "latin-1")
        with pytest.raises(ValueError, match="metrics.json is damaged"):
            run_recipe.run_unless_finished(recipe)
    log = (folder / "log.csv").read_text()
    (folder / "log.csv").unlink()
    with pytest.raises(ValueError, match=r"metrics were in log\.csv"):
        run_recipe.run(recipe)
    (folder / "log.csv").write_text(log)
    for file in folder.glob("step-*"):
        file.unlink()
    other = replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=0.5))
    for function in (run_recipe.run_unless_finished, run_recipe.run):
        with pytest.raises(ValueError, match="another run.*optimizer.learning_rate=0.5"):
            function(other)
    assert json.loads((folder / "recipe.json").read_text())["optimizer"]["learning_rate"] == 3e-3
    with pytest.raises(ValueError, match="run.resume=True"):
        run_recipe.run(replace(recipe, run=replace(recipe.run, resume=False)))
    with pytest.raises(ValueError, match="run.folder"):
        run_recipe.run_unless_finished(masked)


@pytest.fixture
def trained(supervised, folder, trained_toy, monkeypatch):
    """A recipe of which only the training is replaced: by a model with the bias `bias` and the history `history`."""
    settings = {"bias": [0.0] * 10, "history": {"loss": [1.0]}}

    def fit(run, training):
        model = trained_toy(image_size=8, num_classes=10, depth=1, class_names=list("0123456789"))
        compile_for_evaluation(model, run.recipe, 10)
        model.head.bias.assign(settings["bias"])
        training.result = model
        return settings["history"]

    monkeypatch.setattr(run_recipe, "fit", fit)
    return in_folder(supervised, folder), settings


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_metrics_that_are_not_finite_stop_the_run(trained, folder, value):
    """The evaluation is the real one: a graph, in which comparisons with NaN are rewritten."""
    recipe, settings = trained
    settings["bias"] = [value] * 10
    with pytest.raises(FloatingPointError, match="'test' are not finite .loss nan"):
        run_recipe.run(recipe)
    assert not (folder / "metrics.json").exists()


def test_model_is_written_before_anything_that_can_fail(trained, folder, monkeypatch):
    recipe, _ = trained

    def evaluate(model, data, dataset, split):
        assert keras_vit.load(folder / "model.keras").num_classes == 10
        assert (folder / "labels.txt").read_text().split() == list("0123456789")
        raise ValueError(f"the disk of {split} is gone")

    monkeypatch.setattr(supervised_training, "_evaluate", evaluate)
    with pytest.raises(ValueError, match=f"the disk of test is gone.*{folder}/model.keras.*run.resume=True"):
        run_recipe.run(recipe)
    assert not (folder / "metrics.json").exists()
    monkeypatch.setattr(supervised_training, "_evaluate", lambda *_: {"loss": 2.0, "top1": 0.5, "images": 500})
    assert run_recipe.run(recipe) == {"loss": 2.0, "top1": 0.5, "images": 500}


@pytest.mark.parametrize(
    "counts,right,guess",
    [
        ((16, 6, 2), 16, "always"),  # as a float32, 2/3 is more
        ((16, 6, 2), 19, "always"),
        ((16, 6, 2), 21, ""),
        ((11, 1), 11, "always"),  # and 11/12
        ((14, 6), 15, "always"),
        ((14, 6), 19, ""),
        ((16, 4), 10, "always"),
        ((10, 10), 14, "guessing"),
        ((10, 10), 15, ""),
        ((3, 3, 2), 2, "always"),
        ((300_001, 299_999, 400_000), 400_000, "always"),
        ((300_001, 299_999, 400_000), 400_900, ""),
        ((5,), 5, ""),
    ],
)
def test_accuracies_that_a_constant_answer_has_are_reported(counts, right, guess, capsys):
    labels = np.repeat(np.arange(len(counts)), counts)

    def read(split):
        return tf.data.Dataset.from_tensor_slices((labels.astype(str), labels.astype(str), labels))

    names = tuple(f"class {i}" for i in range(len(counts)))
    dataset = ImageDataset("x", names, {"test": len(labels)}, read, stores_paths=True)
    metrics = {"top1": float(np.float32(right / len(labels))), "images": len(labels)}
    supervised_training._warn_of_chance(metrics, dataset, "test")
    errors = capsys.readouterr().err
    assert [word for word in ("always", "guessing") if word in errors] == ([guess] if guess else [])
    if len(counts) > 1:
        better = binomtest(right, len(labels), max(counts) / len(labels), alternative="greater").pvalue <= 0.05
        assert better == (not guess)


def test_skipped_steps_and_accuracies_by_chance_are_reported(trained, folder, monkeypatch, capsys):
    recipe, settings = trained
    monkeypatch.setattr(supervised_training, "_evaluate", lambda *_: {"loss": 2.0, "top1": 0.1, "images": 500})
    settings["history"] = {"nonfinite_steps": [1, 3]}
    assert run_recipe.run(recipe)["nonfinite_steps"] == 3
    assert json.loads((folder / "metrics.json").read_text())["nonfinite_steps"] == 3
    assert "not better than always predicting" in capsys.readouterr().err
    # A run that was stopped after its last step: nothing is trained, but log.csv is there.
    (folder / "log.csv").write_text("epoch,step,nonfinite_steps\n0,2,1\n1,4,2\n")
    settings["history"] = {}
    assert run_recipe.run(recipe)["nonfinite_steps"] == 2
