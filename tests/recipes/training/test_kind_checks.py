"""What the kinds of recipes do not support is an error before anything slow starts."""

from dataclasses import replace

import pytest
import tensorflow as tf

from keras_vit.recipes.recipe import (
    Architecture,
    Augment,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Supervised,
)
from keras_vit.recipes.training.checks import check_recipe
from keras_vit.recipes.training.kind_checks import check_kind
from keras_vit.recipes.training.variant_checks import check_image_size

DATA = Data(dataset="digits", image_size=16, batch_size=32)
BIT, DROPS = Architecture("BiT-R50x1"), Architecture(patch_dropout=0.5)
MIXED = replace(DATA, augment=Augment(cutmix_alpha=1.0))
COPIES = replace(DATA, augment=Augment(mixup_alpha=0.8, repeats=17))


@pytest.mark.parametrize("teacher", [None, "", "gone.keras", "/no/such/folder"])
def test_teacher_must_exist(teacher, tmp_path):
    fields = {"data": DATA, "total_steps": 1000}
    with pytest.raises(ValueError, match="teacher"):
        check_recipe(Distillation(**fields, teacher=teacher), tf.distribute.get_strategy())
    check_recipe(Distillation(**fields, teacher=str(tmp_path)), tf.distribute.get_strategy())


@pytest.mark.parametrize(
    "recipe,words",
    [
        *((kind(BIT, data=DATA), "BiT-R50x1") for kind in (MaskedPatch, MaskedAutoencoder)),
        (Distillation(BIT, data=DATA, teacher="hf:a/b", total_steps=1000), "BiT-R50x1"),
        *((kind(data=MIXED), "no labels") for kind in (MaskedPatch, MaskedAutoencoder)),
        *((kind(DROPS, data=DATA), "patch_dropout=0.5") for kind in (MaskedPatch, MaskedAutoencoder)),
        (Supervised(data=COPIES, total_steps=1000), "batch_size=32 .*1 replicas.*batch_size=34"),
        (MaskedAutoencoder(Architecture(position_embedding="relative")), "position_embedding='relative'"),
        (MaskedAutoencoder(Architecture("R50+B/16")), "ResNet.* architecture.variant='R50.B/16'"),
        (MaskedAutoencoder(Architecture("B/32"), data=replace(DATA, image_size=32)), "two patches"),
        (MaskedAutoencoder(masked_fraction=1.0), "masked_fraction=1.0"),
        (MaskedAutoencoder(decoder_width=100), "decoder_width=100, decoder_heads=16"),
        (MaskedAutoencoder(decoder_width=30, decoder_heads=3), "decoder_width=30, decoder_heads=3"),
    ],
)
def test_fields_that_a_kind_of_recipe_does_not_support(recipe, words):
    recipe = replace(recipe, total_steps=20_000)
    with pytest.raises(ValueError, match=words):
        check_recipe(recipe, tf.distribute.get_strategy())
    if recipe.data != COPIES:
        with pytest.raises(ValueError, match=words):
            check_kind(recipe)


def test_the_fewest_images_that_can_be_mixed():
    data = replace(COPIES, augment=replace(COPIES.augment, repeats=16))
    check_recipe(Supervised(data=data, total_steps=1000), tf.distribute.get_strategy())


def test_check_image_size():
    check_image_size(Architecture("B/16"), Data(image_size=224))
    check_image_size(Architecture("BiT-R50x1"), Data(image_size=225))
    with pytest.raises(ValueError, match="225"):
        check_image_size(Architecture("H/14"), Data(image_size=225))
