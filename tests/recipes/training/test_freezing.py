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


def test_blocks_that_there_are_not_and_the_head_of_a_bit(toy):
    bit = BiT(stages=[1], width_factor=0.5, num_classes=2)
    for model, count, there in ((toy(), 3, 2), (bit, 1, 0)):
        with pytest.raises(ValueError, match=f" {there} .*trainable_blocks={count}"):
            train_last_blocks(model, count)
    train_last_blocks(bit, 0)
    assert [variable.name for variable in bit.trainable_variables] == ["kernel", "bias"]


@pytest.mark.slow
def test_frozen_weights_do_not_change_and_others_do(trained_toy, images, without_xla):
    optimizer = Optimizer("adamw", 0.1, weight_decay=0.1, layer_decay=0.7)
    recipe = Supervised(data=Data(image_size=16), optimizer=optimizer, trainable_blocks=1, total_steps=9)
    model, _ = compile_classifier(recipe, 5, 9, start=trained_toy())
    before = {variable.path: np.array(variable) for variable in model.weights}
    for _ in range(2):  # the learning rate of the first step is 0 for the warmup
        model.train_on_batch(images, np.array([0, 1, 2]))
    changed = {variable.path for variable in model.weights if not np.array_equal(variable, before[variable.path])}
    trainable = {variable.path for variable in model.trainable_variables}
    assert changed <= trainable and len(changed) > 0.8 * len(trainable)
