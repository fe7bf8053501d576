import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.optimizers import SGD, Adam, AdamW, WarmupDecay, build_optimizer
from keras_vit.recipes.recipe import Optimizer


@pytest.mark.parametrize(
    "decay,values",
    [
        # Steps 0, half of the warm-up, its end, middle of the decay, last, beyond.
        ("cosine", (0.0, 0.05, 0.1, 0.05, 0.0, 0.0)),
        ("linear", (0.0, 0.05, 0.1, (0.1 + 1e-5) / 2, 1e-5, 1e-5)),
        ("constant", (0.0, 0.05, 0.1, 0.1, 0.1, 0.1)),
    ],
)
def test_schedule_at_its_corners(decay, values):
    schedule = WarmupDecay(0.1, decay, warmup_steps=10, total_steps=110)
    np.testing.assert_allclose([schedule(step) for step in (0, 5, 10, 60, 110, 200)], values, atol=1e-8)


def test_schedule_without_warmup_and_its_config():
    schedule = WarmupDecay(0.1, "cosine", 0, 100)
    np.testing.assert_allclose(schedule(0), 0.1)
    copy = WarmupDecay.from_config(schedule.get_config())
    np.testing.assert_allclose(copy(25), schedule(25))


def test_warmup_longer_than_the_run():
    with pytest.raises(ValueError, match="warm-up of 100 steps leaves nothing of a run of 100"):
        WarmupDecay(0.1, "cosine", 100, 100)


def test_recipe_to_optimizer():
    sgd = build_optimizer(Optimizer(name="sgd", global_clipnorm=None), 10)
    assert isinstance(sgd, SGD) and sgd.momentum == 0.9 and sgd.global_clipnorm is None
    adam = build_optimizer(Optimizer(), 10)
    assert isinstance(adam, Adam) and (adam.beta_1, adam.beta_2, adam.epsilon) == (0.9, 0.999, 1e-8)
    with pytest.raises(ValueError, match="needs name='adamw'. Received: name='sgd'"):
        build_optimizer(Optimizer(name="sgd", weight_decay=0.1), 10)


def test_only_kernels_are_decayed(toy):
    model = toy(representation_size=6, pooling="map", class_token=True)
    optimizer = build_optimizer(Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.5, decay="constant"), 10)
    before = [weight.numpy() for weight in model.trainable_weights]
    for weight in model.trainable_weights:
        weight.assign(np.ones(weight.shape))
    optimizer.build(model.trainable_weights)
    optimizer.apply([np.zeros(value.shape, "float32") for value in before])
    decayed = {weight.path.rpartition("/")[2] for weight in model.trainable_weights if not np.allclose(weight, 1)}
    kept = {weight.path.rpartition("/")[2] for weight in model.trainable_weights if np.allclose(weight, 1)}
    assert decayed == {"kernel"} and kept == {"bias", "gamma", "beta", "token", "table", "probe"}


@pytest.mark.parametrize("optimizer", [SGD(0.1, global_clipnorm=0.5), Adam(0.1), AdamW(0.1, clipvalue=0.2)])
def test_optimizers_are_saved_by_keras(optimizer):
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer) and copy.get_config() == optimizer.get_config()


@pytest.mark.parametrize("clipping", [{"global_clipnorm": 0.5}, {"clipnorm": 0.1}, {"clipvalue": 0.01}, {}])
def test_one_device_equals_keras(toy, images, clipping):
    ours, theirs = toy(), toy()
    theirs.set_weights(ours.get_weights())
    for model, optimizer in ((ours, SGD(0.3, **clipping)), (theirs, keras.optimizers.SGD(0.3, **clipping))):
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(images, np.array([0, 1, 2]), epochs=3, verbose=0)
    for one, other in zip(ours.get_weights(), theirs.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-6)


def train(strategy, make_optimizer, toy, batch=8, steps=10):
    """Ten updates on batches whose halves differ in scale, so that clipping each replica alone would change the sum."""
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (batch * steps, 16, 16, 3)).astype("float32")
    images[::2] *= 0.1
    labels = random.integers(0, 5, batch * steps)
    labels.reshape(steps, 2, batch // 2)[:, 0] = 0
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = toy()
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        model.compile(make_optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch, drop_remainder=True)
    model.fit(dataset, shuffle=False, verbose=0)
    return model.get_weights()


def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: SGD(0.1, momentum=0.9, global_clipnorm=0.05),
        lambda: Adam(1e-3, epsilon=1e-4, global_clipnorm=0.05),
        lambda: AdamW(1e-3, weight_decay=0.1, epsilon=1e-4, global_clipnorm=0.05),
    ],
    ids=["sgd", "adam", "adamw"],
)
def test_two_replicas_equal_one_with_clipping_active(toy, make_optimizer):
    strategy = two_replicas()
    assert strategy.num_replicas_in_sync == 2
    one = train(tf.distribute.get_strategy(), make_optimizer, toy)
    two = train(strategy, make_optimizer, toy)
    for first, second in zip(one, two):
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_clipping_is_active_in_that_comparison_and_keras_alone_would_fail_it(toy):
    clipped = train(tf.distribute.get_strategy(), lambda: SGD(0.1, momentum=0.9, global_clipnorm=0.05), toy)
    free = train(tf.distribute.get_strategy(), lambda: SGD(0.1, momentum=0.9), toy)
    assert max(np.abs(a - b).max() for a, b in zip(clipped, free)) > 1e-2
    keras_sgd = lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.05)  # noqa: E731
    theirs = train(two_replicas(), keras_sgd, toy)
    assert max(np.abs(a - b).max() for a, b in zip(clipped, theirs)) > 1e-3
