import numpy as np
import pytest

from keras_vit import BiT
from keras_vit.recipes.recipe import Data, Optimizer, Supervised
from keras_vit.recipes.training.compile import compile_classifier
from keras_vit.recipes.training.freezing import train_last_blocks


@pytest.mark.parametrize("count,first", [(0, "head/"), (1, "encoder/block_1/"), (2, "encoder/block_0/")])
def test_all_before_the_last_blocks_is_frozen(toy, count, first):
    model = toy()
    train_last_blocks(model, count)
    names = [variable.path.removeprefix(f"{model.path}/") for variable in model.trainable_variables]
    assert names[0].startswith(first)
    frozen = {variable.path.removeprefix(f"{model.path}/") for variable in model.non_trainable_variables}
    assert not any(name.startswith("head/") for name in frozen) and any("patch_embedding" in name for name in frozen)
    assert ("encoder/norm/gamma" in frozen) == (count == 0)


def test_more_blocks_than_there_are_raise(toy):
    with pytest.raises(ValueError, match="trainable_blocks=3 is more than the 2 .*trainable_blocks=2, or"):
        train_last_blocks(toy(), 3)
    with pytest.raises(ValueError, match="trainable_blocks=1 is more than the 0 Transformer blocks"):
        train_last_blocks(BiT(stages=[1], width_factor=0.5, num_classes=2), 1)


def test_head_of_a_bit():
    model = BiT(stages=[1], width_factor=0.5, num_classes=2)
    train_last_blocks(model, 0)
    assert [variable.name for variable in model.trainable_variables] == ["kernel", "bias"]


@pytest.mark.slow
def test_frozen_weights_do_not_change_and_others_do(trained_toy, images):
    data, optimizer = Data(image_size=16), Optimizer("adamw", 0.1, weight_decay=0.1, layer_decay=0.7)
    recipe = Supervised(data=data, optimizer=optimizer, trainable_blocks=1, total_steps=9)
    model, _ = compile_classifier(recipe, 5, 9, start=trained_toy())
    before = {variable.path: np.array(variable) for variable in model.weights}
    for _ in range(2):  # the learning rate of the first step is 0 for the warmup
        model.train_on_batch(images, np.array([0, 1, 2]))
    changed = {path for path, value in before.items() if not np.array_equal(value, model_value(model, path))}
    trainable = {variable.path for variable in model.trainable_variables}
    assert changed <= trainable and len(changed) > 0.8 * len(trainable)


def model_value(model, path):
    return next(np.array(variable) for variable in model.weights if variable.path == path)
