import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.recipes.distributed.strategy import choose_strategy, shard_batches
from keras_vit.recipes.training.loop import set_steps_per_execution, use_static_step_loop

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
    """Without `reset_step_functions`, Keras keeps the loop of the previous value and evaluates only some batches."""
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
