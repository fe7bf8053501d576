"""The settings that `keras-vit finetune` chooses."""

import pytest

from keras_vit import Preprocessing
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.configs.small_folder import (
    Machine,
    batch_size,
    fit_to_folder,
    image_size,
    total_epochs,
    training_seconds,
)

IMAGENET = Preprocessing(224, "shortest", 0.9, "bicubic", True, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
LAPTOP, GPU = Machine(False, 0.03, 0.002), Machine(True, 0.001, 0.001)
SLOW = Machine(False, 0.5, 0.002)


def chosen(images, machine=LAPTOP, depth=12, preprocessing=IMAGENET):
    return fit_to_folder(RECIPES["finetune-small"], images, preprocessing, 224, depth, machine)


@pytest.mark.parametrize("machine", [LAPTOP, GPU, SLOW])
def test_every_number_of_images_has_a_recipe_that_can_run(machine):
    for images in (2, 5, 7, 29, 30, 144, 800, 4000, 50_000):
        recipe = chosen(images, machine)
        assert recipe.data.batch_size <= images
        assert 1 <= recipe.optimizer.warmup_steps < recipe.total_steps
        assert recipe.run.epoch_steps >= 1 and recipe.total_steps % recipe.run.epoch_steps == 0


def test_more_images_are_seen_less_often_in_larger_batches():
    assert [batch_size(n, False) for n in (5, 30, 144, 800, 4000)] == [4, 8, 16, 32, 32]
    assert [batch_size(n, True) for n in (30, 144, 800, 4000)] == [8, 16, 64, 128]
    epochs = [total_epochs(n) for n in (10, 30, 144, 800, 4000)]
    assert epochs == sorted(epochs, reverse=True) and epochs[0] <= 30 and epochs[-1] == 5
    seen = [n * total_epochs(n) for n in (30, 144, 800, 4000)]
    assert seen == sorted(seen)


def test_images_are_prepared_as_the_weights_require():
    data = chosen(144).data
    assert (data.mean, data.std) == (IMAGENET.mean, IMAGENET.std)
    assert (data.evaluation_resize, data.evaluation_crop) == ("shortest", 0.9)
    assert (data.interpolation, data.antialias) == ("bicubic", True)
    assert chosen(144, preprocessing=Preprocessing(224, interpolation="lanczos3")).data.interpolation == "bicubic"
    assert chosen(144, preprocessing=Preprocessing(224, interpolation="nearest")).data.interpolation == "bilinear"


def test_a_cpu_trains_a_part_of_the_model_if_all_would_take_over_an_hour():
    assert [chosen(n).trainable_blocks for n in (144, 4000)] == [None, None]
    assert [chosen(n, Machine(False, 0.1, 0.002)).trainable_blocks for n in (144, 4000, 12_000)] == [None, 3, 0]
    assert chosen(4000, Machine(True, 10.0, 0.1)).trainable_blocks is None  # a GPU trains all
    assert chosen(4000, SLOW, depth=0).trainable_blocks is None  # a BiT has no blocks
    assert chosen(4000, SLOW, depth=0).optimizer.layer_decay is None
    whole, part, head = (training_seconds(LAPTOP, 1000, 12, blocks) for blocks in (None, 3, 0))
    assert whole == pytest.approx(92.0) and part == pytest.approx(47.0) and head == pytest.approx(32.0)


def test_the_length_shrinks_only_if_even_the_head_takes_over_an_hour():
    recipe = chosen(4000, SLOW)
    assert recipe.trainable_blocks == 0
    assert training_seconds(SLOW, recipe.total_steps * recipe.data.batch_size, 12, 0) == pytest.approx(3600, rel=0.02)
    one_epoch = chosen(50_000, SLOW)
    assert one_epoch.total_steps * one_epoch.data.batch_size == pytest.approx(50_000, rel=0.01)


def test_image_size_is_that_of_the_weights_and_on_a_cpu_at_most_the_pixels_of_224():
    assert image_size(Preprocessing(384), True) == 384
    assert image_size(Preprocessing(384), False, (16, 16)) == 224
    assert image_size(Preprocessing(32), False, (4, 4)) == 32
    assert image_size(Preprocessing(420), False, (15, 15)) == 210  # of whole patches
    assert image_size(Preprocessing((64, 256)), False, (16, 16)) == (64, 256)
    assert image_size(Preprocessing((256, 1024)), False, (16, 16)) == (112, 448) == (224 / 2, 224 * 2)
    assert image_size(Preprocessing((256, 1024)), True, (16, 16)) == (256, 1024)


def test_precision_is_that_of_the_machine():
    assert [chosen(144, machine).run.precision for machine in (LAPTOP, GPU)] == ["float32", "mixed_bfloat16"]
