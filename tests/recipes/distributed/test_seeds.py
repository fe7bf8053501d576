import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.distributed.seeds import offset_replica_seeds
from keras_vit.recipes.training.optimizers import SGD


def build(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)])
        model.compile(SGD(0.1), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    return model


def masks(strategy, model):
    drawn = strategy.run(tf.function(lambda: model.layers[0](tf.ones((1, 64)), training=True)))
    return [value.numpy() for value in strategy.experimental_local_results(drawn)]


def test_replicas_draw_different_masks_also_after_a_checkpoint(tmp_path):
    reduce = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduce)
    model = build(strategy)
    first, second = masks(strategy, model)
    np.testing.assert_array_equal(first, second)  # as in Keras
    offset_replica_seeds(model)
    first, second = masks(strategy, model)
    assert not np.array_equal(first, second)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore(model)
    checkpoints.set_model(model)
    model.optimizer.iterations.assign(1)
    checkpoints.on_train_end()
    expected = masks(strategy, model)
    resumed = build(strategy)
    assert Checkpoints(tmp_path).restore(resumed) == 1
    offset_replica_seeds(resumed)
    for mask, reference in zip(masks(strategy, resumed), expected):
        np.testing.assert_array_equal(mask, reference)


def test_replicas_drop_different_patches(toy):
    reduce = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduce)
    with strategy.scope():
        model = toy(depth=1, patch_dropout=0.5, seed=3)
    embeddings = tf.random.normal((1, 16, 12), seed=0)

    def tokens():
        drawn = strategy.run(tf.function(lambda: model.add_tokens(embeddings, training=True)))
        return [value.numpy() for value in strategy.experimental_local_results(drawn)]

    np.testing.assert_array_equal(*tokens())  # as in Keras
    offset_replica_seeds(model)
    first, second = tokens()
    assert first.shape == (1, 9, 12) and not np.array_equal(first, second)
    np.testing.assert_array_equal(first[:, 0], second[:, 0])  # the class token


def test_one_replica_is_unchanged():
    model = build(tf.distribute.get_strategy())
    state = model.layers[0].seed_generator.state.numpy()
    offset_replica_seeds(model)
    np.testing.assert_array_equal(model.layers[0].seed_generator.state, state)
