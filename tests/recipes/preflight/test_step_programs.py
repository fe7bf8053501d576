from dataclasses import replace

import keras
import pytest
import tensorflow as tf

from keras_vit.recipes.preflight import preflight
from keras_vit.recipes.preflight.step_programs import ModelPrograms, RecipePrograms
from keras_vit.recipes.recipe import Augment, MaskedAutoencoder, MaskedPatch, Optimizer


@pytest.mark.slow
@pytest.mark.parametrize("replicas,found", [(1, False), (4, True)])
def test_gradients_are_summed_over_replicas(recipe, replicas, found):
    programs = RecipePrograms(recipe, 10, 1_000, replicas)
    program = programs.lower("training", 8)
    assert program.problems == () and (b"all-reduce" in program.hlo) is found
    assert "all_reduce" not in vars(tf.distribute.get_replica_context())  # restored


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: MaskedPatch(architecture=recipe.architecture, data=recipe.data, run=recipe.run),
        lambda recipe: MaskedAutoencoder(
            recipe.architecture, recipe.data, run=recipe.run, decoder_depth=1, decoder_width=8, decoder_heads=2
        ),
        lambda recipe: replace(recipe, data=replace(recipe.data, augment=Augment(mixup_alpha=0.2)), loss="sigmoid"),
        lambda recipe: replace(recipe, optimizer=Optimizer("sgd", accumulation_steps=2, warmup_steps=10)),
        lambda recipe: replace(recipe, data=replace(recipe.data, dataset="csv:/not/here"), loss="sigmoid"),
    ],
    ids=["masked patches", "masked autoencoder", "mixup", "accumulation", "several labels"],
)
def test_every_kind_of_recipe_can_be_lowered(recipe, change):
    programs = RecipePrograms(change(recipe), 10, 1_000, 2)
    assert [programs.lower(kind, 8).problems for kind in programs.kinds] == [()] * len(programs.kinds)


def test_weights_on_this_machine_determine_the_model(recipe, toy, tmp_path):
    toy(patch_size=16).save(tmp_path / "model.keras")
    programs = RecipePrograms(replace(recipe, weights=f"{tmp_path}/model.keras"), 10, 1_000, 1)
    assert (programs.model.config.width, programs.model.num_classes, programs.model.grid) == (12, 10, (2, 2))
    assert programs.architecture.endswith("model.keras") and programs.notes == ()
    programs = RecipePrograms(replace(recipe, weights="vit/imagenet21k/ViT-L_16"), 10, 1_000, 1)
    assert (programs.model.config.width, programs.architecture) == (128, "Ti/8")
    assert "ViT-L_16 are not on this machine: the architecture of the recipe was assumed, Ti/8" in programs.notes[0]


def test_models_need_weights_and_a_static_input_shape():
    with pytest.raises(ValueError, match="has no weights yet. Build it, or call it on a batch"):
        preflight(keras.Sequential([keras.layers.Dense(2)]), "v5e:1", 8)
    any_size = keras.Sequential([keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D()])
    with pytest.raises(ValueError, match=r"static shapes. .* inputs of shape \(None, None, 3\): build it for one size"):
        preflight(any_size, "v5e:1", 8)


@pytest.mark.parametrize("optimizer", ["adam", keras.optimizers.SGD(0.1, global_clipnorm=1.0)])
def test_optimizers_of_keras_sum_gradients_over_replicas(optimizer):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    assert b"all-reduce" in ModelPrograms(model, replicas=4).lower("training", 8).hlo
    assert b"all-reduce" not in ModelPrograms(model, replicas=1).lower("training", 8).hlo


def test_not_in_a_strategy_scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    programs = ModelPrograms(model)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope(), pytest.raises(ValueError, match="outside of a strategy's"):
        programs.lower("training", 8)
