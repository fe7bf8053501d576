import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.checkpoints.checkpoints import Checkpoints
from keras_vit.recipes.training.loop import offset_replica_seeds
from keras_vit.recipes.training.optimizers import SGD


@pytest.fixture
def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())


def build(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)])
        model.compile(SGD(0.1), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    return model


def drawn(strategy, function):
    """What the function returns on each replica."""
    results = strategy.experimental_local_results(strategy.run(tf.function(function)))
    return [result.numpy() for result in results]


def masks(strategy, model):
    return drawn(strategy, lambda: model.layers[0](tf.ones((1, 64)), training=True))


def test_replicas_draw_different_masks_also_after_a_checkpoint(two_replicas, tmp_path):
    model = build(two_replicas)
    np.testing.assert_array_equal(*masks(two_replicas, model))  # as in Keras
    offset_replica_seeds(model)
    first, second = masks(two_replicas, model)
    assert not np.array_equal(first, second)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore(model)
    checkpoints.set_model(model)
    model.optimizer.iterations.assign(1)
    checkpoints.on_train_end()
    expected = masks(two_replicas, model)
    resumed = build(two_replicas)
    assert Checkpoints(tmp_path).restore(resumed) == 1
    offset_replica_seeds(resumed)
    np.testing.assert_array_equal(masks(two_replicas, resumed), expected)


def test_replicas_drop_different_patches(two_replicas, toy):
    with two_replicas.scope():
        model = toy(depth=1, patch_dropout=0.5, seed=3)
    embeddings = tf.random.normal((1, 16, 12), seed=0)

    def tokens():
        return model.add_tokens(embeddings, training=True)

    np.testing.assert_array_equal(*drawn(two_replicas, tokens))  # as in Keras
    offset_replica_seeds(model)
    first, second = drawn(two_replicas, tokens)
    assert first.shape == (1, 9, 12) and not np.array_equal(first, second)
    np.testing.assert_array_equal(first[:, 0], second[:, 0])  # the class token


def test_one_replica_is_unchanged():
    model = build(tf.distribute.get_strategy())
    state = model.layers[0].seed_generator.state.numpy()
    offset_replica_seeds(model)
    np.testing.assert_array_equal(model.layers[0].seed_generator.state, state)
