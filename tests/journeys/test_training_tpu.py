"""Every kind of training under TensorFlow's TPUStrategy, as far as a machine without a TPU goes: the steps are traced.

A step cannot run here: TensorFlow's error names an operation that only a TPU's worker has, after the whole graph of
the step was built. The teacher of a distillation is traced in the same way
(tests/recipes/training/test_distillation.py).
"""

from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from journeys.cells import Cell
from journeys.training import command
from keras_vit.recipes.fit import evaluate
from keras_vit.recipes.processes import strategies
from keras_vit.recipes.recipe.file import read_recipe
from keras_vit.recipes.runs.supervised import compile_classifier
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
TRACED, OTHERS = ("supervised", "masked_patch"), ("several_labels", "autoencoder")
REPLICATED = "TPUReplicate"  # begins the names of the operations around a step


@pytest.fixture
def tpu(monkeypatch):
    strategy = simulated_tpu()
    monkeypatch.setattr(strategies, "_tpu_name", lambda: "local")
    monkeypatch.setattr(strategies, "_tpu_strategy", lambda name: strategy)
    return strategy


@pytest.mark.parametrize("kind", [*TRACED, *(pytest.param(kind, marks=pytest.mark.extended) for kind in OTHERS)])
def test_steps_are_traced(kind, tpu, journey_data, tmp_path):
    cell = Cell(kind, "tpu", "mixed_bfloat16", True, True, "block", False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REPLICATED):
        main(["--debug", *command(cell, journey_data, tmp_path / "run")])


@pytest.mark.parametrize("multi_label", [False, True])
def test_an_evaluation_is_traced(multi_label, tpu, journey_data):
    recipe = read_recipe(journey_data / "teacher" / "recipe.json")
    if multi_label:
        data = replace(recipe.data, dataset=f"csv:{journey_data / 'several'}")
        recipe = replace(recipe, data=data, loss="sigmoid")
    with tpu.scope():
        model, _ = compile_classifier(recipe, 3, recipe.total_steps, multi_label=multi_label)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REPLICATED):
        evaluate(model, recipe.data, "test")
