import json
from dataclasses import replace

import pytest

from keras_vit.recipes import run_recipe
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.training.compile import compile_for_evaluation

pytestmark = pytest.mark.slow


@pytest.fixture
def recipe(data_dir, tmp_path):
    return MaskedPatch(
        architecture=Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3),
        data=Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=1),
        run=Run(folder=str(tmp_path / "run"), resume=True),
        total_steps=4,
    )


def test_finished_run_is_not_trained_again(recipe, tmp_path):
    metrics = run_recipe.run(recipe)
    assert metrics["loss"] > 0 and set(metrics) >= {"top1", "learning_rate"}
    again = run_recipe.run(recipe)  # no steps remain
    assert {name: again[name] for name in ("loss", "top1")} == pytest.approx(
        {name: metrics[name] for name in ("loss", "top1")}
    )
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == again
    assert run_recipe.run_unless_finished(recipe) == again


def test_metrics_of_another_recipe_raise(recipe, tmp_path):
    run_recipe.run(recipe)
    for file in (tmp_path / "run").glob("step-*"):
        file.unlink()
    other = replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=0.5))
    for function in (run_recipe.run_unless_finished, run_recipe.run):
        with pytest.raises(ValueError, match="of another run: it differs in optimizer.learning_rate"):
            function(other)
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["optimizer"]["learning_rate"] == 3e-3
    with pytest.raises(ValueError, match="already contains a run. Resume it with run.resume=True"):
        run_recipe.run(replace(recipe, run=replace(recipe.run, resume=False)))


def test_run_unless_finished_requires_a_folder(recipe):
    with pytest.raises(ValueError, match="set run.folder"):
        run_recipe.run_unless_finished(replace(recipe, run=replace(recipe.run, folder=None)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_model_stops_the_run(recipe, toy, monkeypatch, tmp_path, value):
    """The evaluation is the real one: a graph, in which comparisons with NaN are rewritten."""
    recipe = Supervised(data=recipe.data, optimizer=recipe.optimizer, run=recipe.run, total_steps=4)

    def train(recipe):
        model = toy(image_size=8, num_classes=10)
        compile_for_evaluation(model, recipe, 10)
        model.head.bias.assign([value] * 10)
        return model, {}

    monkeypatch.setattr(run_recipe, "train", train)
    monkeypatch.setattr(run_recipe, "check_unchanged", lambda *_: None)
    with pytest.raises(
        FloatingPointError, match="^Metrics of the model on the split 'test' are not finite .loss nan.:"
    ):
        run_recipe.run(recipe)
    assert not (tmp_path / "run" / "metrics.json").exists() and not (tmp_path / "run" / "model.keras").exists()


def test_skipped_steps_and_accuracies_by_chance_are_said(recipe, toy, monkeypatch, tmp_path, capsys):
    recipe = Supervised(data=recipe.data, optimizer=recipe.optimizer, run=recipe.run, total_steps=4)

    def train(recipe):
        model = toy(image_size=8, num_classes=10)
        compile_for_evaluation(model, recipe, 10)
        model.head.bias.assign([*[-1.0] * 9, 9.0])
        return model, {"nonfinite_steps": [1, 3]}

    monkeypatch.setattr(run_recipe, "train", train)
    monkeypatch.setattr(run_recipe, "check_unchanged", lambda *_: None)
    assert run_recipe.run(recipe)["nonfinite_steps"] == 3
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["nonfinite_steps"] == 3
    assert "is that of chance for 10 classes" in capsys.readouterr().err
    # A run that was stopped after its last step: nothing is trained, but log.csv is there.
    (tmp_path / "run" / "log.csv").write_text("epoch,step,nonfinite_steps\n0,2,1\n1,4,2\n")
    monkeypatch.setattr(run_recipe, "train", lambda recipe: (train(recipe)[0], {}))
    assert run_recipe.run(recipe)["nonfinite_steps"] == 2


def test_metrics_file_is_valid_json(recipe, toy, tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        run_recipe.write_results(recipe, toy(num_classes=0), {"loss": float("nan")})
    assert not (tmp_path / "run" / "metrics.json").exists()
