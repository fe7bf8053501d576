"""What the kinds of recipes do not support is an error before anything slow starts."""

from dataclasses import replace
from functools import partial

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

DATA = Data(dataset="digits", image_size=16, batch_size=32)


def test_teacher_must_exist(tmp_path):
    fields = {"data": DATA, "total_steps": 1000}
    for teacher in (None, "", str(tmp_path / "gone"), "gone.keras"):
        with pytest.raises(ValueError, match="requires a teacher"):
            check_recipe(Distillation(**fields, teacher=teacher), tf.distribute.get_strategy())
    check_recipe(Distillation(**fields, teacher=str(tmp_path)), tf.distribute.get_strategy())


def test_fields_that_a_kind_of_recipe_does_not_support():
    bit = {"architecture": Architecture("BiT-R50x1"), "total_steps": 1000}
    for kind in (MaskedPatch, MaskedAutoencoder, partial(Distillation, teacher="hf:a/b")):
        with pytest.raises(ValueError, match="requires a Vision Transformer: .*BiT-R50x1"):
            check_recipe(kind(**bit, data=DATA), tf.distribute.get_strategy())
    mixed = replace(DATA, augment=Augment(cutmix_alpha=1.0))
    with pytest.raises(ValueError, match="no labels to mix"):
        check_recipe(MaskedPatch(data=mixed, total_steps=20_000), tf.distribute.get_strategy())
    with pytest.raises(ValueError, match="no labels to mix"):
        check_recipe(MaskedAutoencoder(data=mixed), tf.distribute.get_strategy())
    for kind in (MaskedPatch, MaskedAutoencoder):
        with pytest.raises(ValueError, match="architecture.patch_dropout=0.5. Use architecture.patch_dropout=0.0"):
            check_kind(kind(architecture=Architecture(patch_dropout=0.5)))


def test_batches_of_copies_of_one_image_cannot_be_mixed():
    augment = Augment(mixup_alpha=0.8, repeats=17)
    recipe = Supervised(data=replace(DATA, augment=augment), total_steps=1000)
    with pytest.raises(ValueError, match="data.batch_size=32 for 1 replicas. Use at least data.batch_size=34"):
        check_recipe(recipe, tf.distribute.get_strategy())
    check_recipe(
        replace(recipe, data=replace(DATA, augment=replace(augment, repeats=16))), tf.distribute.get_strategy()
    )


@pytest.mark.parametrize(
    "changes,message",
    [
        (
            {"architecture": Architecture(position_embedding="relative")},
            "architecture.position_embedding='relative'. Use",
        ),
        ({"architecture": Architecture("R50+B/16")}, "a ResNet mixes them .* architecture.variant='R50.B/16'"),
        ({"architecture": Architecture("B/32"), "data": replace(DATA, image_size=32)}, "at least two patches"),
        ({"masked_fraction": 1.0}, r"masked_fraction must be in \(0, 1\), .*Received: masked_fraction=1.0"),
        ({"decoder_width": 100}, "multiple of decoder_heads and.* decoder_width=100, decoder_heads=16"),
        ({"decoder_width": 30, "decoder_heads": 3}, "positions, of 4. Received: decoder_width=30, decoder_heads=3"),
    ],
)
def test_encoders_and_decoders_that_cannot_be_trained(changes, message):
    with pytest.raises(ValueError, match=message):
        check_kind(MaskedAutoencoder(**changes))
