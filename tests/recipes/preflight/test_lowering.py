"""Steps of models and recipes as programs for a TPU: operations that it does not have, gradients over replicas."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.preflight import preflight
from keras_vit.recipes.preflight.lowering import lower_step
from keras_vit.recipes.preflight.step_programs import ModelPrograms, RecipePrograms
from keras_vit.recipes.recipe import Augment, MaskedAutoencoder, MaskedPatch, Optimizer


def host(x):
    return tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), x.shape)


@pytest.mark.parametrize(
    "function,problem",
    [
        (host, "PyFunc.* in .*unsupported.*host"),
        (lambda x: tf.reduce_sum(tf.boolean_mask(x, x > 0)) + x, "Where in .*unsupported.*shape"),
        (lambda x: tf.cast(tf.cast(x, tf.float64) * np.pi, tf.float32), "in .*unsupported.*float64"),
        (lambda x: x + tf.strings.to_number(tf.strings.as_string(x)), "AsString in .*unsupported.*strings"),
        (lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, host(y)), (0, x))[1], "PyFunc.*host"),
    ],
    ids=["host", "dynamic", "double", "strings", "looped"],
)
def test_unsupported_operations_are_reported_with_their_layer(function, problem):
    class Unsupported(keras.layers.Layer):
        def call(self, x):
            return function(x)

    model = keras.Sequential([Unsupported(name="unsupported")], name="toy")
    program = lower_step(model, "inference", (tf.TensorSpec((4, 8, 8, 3)),))
    assert program.hlo == b"" and "toy/unsupported" in str(program.problems)
    with pytest.raises(ValueError, match=problem):
        raise ValueError(program.problems)


def test_a_step_is_lowered_for_a_static_batch_size():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)], name="toy")
    program = lower_step(model, "inference", (tf.TensorSpec((4, 8, 8, 3)),))
    assert program.problems == () and len(program.hlo) > 100
    with pytest.raises(ValueError, match=r"\(None, 8, 8, 3\)"):
        lower_step(model, "inference", (tf.TensorSpec((None, 8, 8, 3)),))


@pytest.mark.slow
@pytest.mark.parametrize("replicas,found", [(1, False), (4, True)])
def test_gradients_are_summed_over_replicas(recipe, replicas, found):
    program = RecipePrograms(recipe, 10, 1_000, replicas).lower("training", 8)
    assert program.problems == () and (b"all-reduce" in program.hlo) is found
    assert "all_reduce" not in vars(tf.distribute.get_replica_context())  # restored


@pytest.mark.parametrize("optimizer", ["adam", keras.optimizers.SGD(0.1, global_clipnorm=1.0)])
def test_optimizers_of_keras_sum_gradients_over_replicas(optimizer):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    assert b"all-reduce" in ModelPrograms(model, replicas=4).lower("training", 8).hlo
    assert b"all-reduce" not in ModelPrograms(model, replicas=1).lower("training", 8).hlo


ACCUMULATED = Optimizer("sgd", accumulation_steps=2, warmup_steps=10)
KINDS = {
    "masked patches": lambda recipe: MaskedPatch(recipe.architecture, recipe.data, run=recipe.run),
    "masked autoencoder": lambda recipe: MaskedAutoencoder(
        recipe.architecture, recipe.data, run=recipe.run, decoder_depth=1, decoder_width=8, decoder_heads=2
    ),
    "mixup, accumulation and weights of classes": lambda recipe: replace(
        recipe,
        data=replace(recipe.data, augment=Augment(mixup_alpha=0.2)),
        loss="sigmoid",
        optimizer=ACCUMULATED,
        class_weight="balanced",
    ),
    "several labels": lambda recipe: replace(
        recipe, data=replace(recipe.data, dataset="csv:/not/here"), loss="sigmoid", optimizer=Optimizer("sgd")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_recipe_can_be_lowered(recipe, kind):
    programs = RecipePrograms(KINDS[kind](recipe), 10, 1_000, 2)
    assert [programs.lower(kind, 8).problems for kind in programs.kinds] == [()] * len(programs.kinds)


def test_weights_on_this_machine_determine_the_model(recipe, toy, tmp_path):
    toy(patch_size=16).save(tmp_path / "model.keras")
    programs = RecipePrograms(replace(recipe, weights=f"{tmp_path}/model.keras"), 10, 1_000, 1)
    assert (programs.model.config.width, programs.model.num_classes, programs.model.grid) == (12, 10, (2, 2))
    assert programs.architecture.endswith("model.keras") and programs.notes == ()
    programs = RecipePrograms(replace(recipe, weights="vit/imagenet21k/ViT-L_16"), 10, 1_000, 1)
    assert (programs.model.config.width, programs.architecture) == (128, "Ti/8")
    assert "ViT-L_16" in programs.notes[0] and "Ti/8" in programs.notes[0]


def test_models_that_cannot_be_lowered():
    with pytest.raises(ValueError, match="no weights"):
        preflight(keras.Sequential([keras.layers.Dense(2)]), "v5e:1", 8)
    any_size = keras.Sequential([keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D()])
    with pytest.raises(ValueError, match=r"\(None, None, 3\)"):
        preflight(any_size, "v5e:1", 8)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    programs = ModelPrograms(model)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope(), pytest.raises(ValueError, match="scope"):
        programs.lower("training", 8)
