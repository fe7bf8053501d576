"""Steps per execution and the seeds of replicas."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.recipes.processes.strategies import choose_strategy, shard_batches
from keras_vit.recipes.runs.checkpoints import Checkpoints
from keras_vit.recipes.runs.loop import offset_replica_seeds, set_steps_per_execution, use_static_step_loop
from keras_vit.recipes.training.optimizers import SGD

PADS = "XlaSetDynamicDimensionSize"
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(40, 4)).astype("float32"), RANDOM.normal(size=(40, 1)).astype("float32")


def compiled(steps):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = keras.optimizers.SGD(0.05)
    model.compile(optimizer, "mse", weighted_metrics=["mae"], steps_per_execution=steps, jit_compile=False)
    optimizer.build(model.trainable_variables)
    return model


def batches(host=None):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one-device", "mirrored"])
def test_static_step_loop_equals_single_steps(name, logical_cpus):
    logical_cpus(2)
    strategy = choose_strategy(name)
    weights, history, evaluated, ends = trained(strategy, 1)
    ours, our_history, our_evaluated, our_ends = trained(strategy, 4)
    assert ends == [*range(8)] * 2 and our_ends == [3, 7] * 2
    for one, other in zip(ours, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert our_evaluated == pytest.approx(evaluated)
    for name, values in history.items():
        assert our_history[name] == pytest.approx(values)


def trained(strategy, steps):
    """Weights, history, evaluation and the last step of each call of a model that trains `steps` at a time."""
    with strategy.scope():
        model = compiled(steps)
    if steps > 1:
        use_static_step_loop(model)
    ends = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
    fit = {"steps_per_epoch": 8, "epochs": 2, "callbacks": [count], "shuffle": False, "verbose": 0}
    history = model.fit(batches().repeat(), **fit).history
    # 10 batches: the last call has 2.
    evaluated = model.evaluate(batches(), steps=10, return_dict=True, verbose=0)
    return model.get_weights(), history, evaluated, ends


@pytest.mark.slow
def test_steps_per_execution_applies_to_evaluations():
    """Unless its functions are built again, Keras keeps the previous loop and evaluates only some batches."""
    model = compiled(1)
    for steps, per_execution in ((3, 1), (8, 4)):
        set_steps_per_execution(model, per_execution)
        model.fit(batches().repeat(), steps_per_epoch=steps, validation_data=batches(), shuffle=False, verbose=0)
        answers = model.predict(batches().map(lambda x, y: x), verbose=0)
        expected = np.mean((answers - Y) ** 2)
        assert model.history.history["val_loss"] == pytest.approx([expected], rel=1e-5)
        assert model.steps_per_execution == per_execution


@pytest.mark.slow
def test_batch_size_is_static_on_a_tpu():
    strategy = simulated_tpu()
    with strategy.scope():
        model = compiled(5)
    data = shard_batches(strategy, lambda host: batches().repeat(), 4)
    model.make_train_function()
    of_keras = inspect.getclosurevars(model.train_function).nonlocals["multi_step_on_iterator"]
    use_static_step_loop(model)
    ours = inspect.getclosurevars(model.train_function).nonlocals["training"]
    evaluation = inspect.getclosurevars(model.test_function).nonlocals["evaluation"]
    assert PADS in operations(of_keras, iter(data))
    for function, given in ((ours, iter(data)), (evaluation, next(iter(data)))):
        assert not {PADS, "OptionalFromValue"} & operations(function, given)
        assert "TPUReplicateMetadata" in operations(function, given)


def operations(function, given):
    graph = function.get_concrete_function(given).graph.as_graph_def()
    inner = (node.op for part in graph.library.function for node in part.node_def)
    return {*inner, *(node.op for node in graph.node)}


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
