"""Several training steps per call of a compiled function."""

import tensorflow as tf

from keras_vit.recipes.distributed.strategy import strategy_of
from keras_vit.recipes.training.keras_internals import has_train_function, reset_step_functions, set_step_functions


def set_steps_per_execution(model, steps_per_execution: int):
    """Sets the number of steps per call in `fit`."""
    if model.steps_per_execution != steps_per_execution:
        model.steps_per_execution = steps_per_execution
        reset_step_functions(model)
    on_tpu = isinstance(strategy_of(model), tf.distribute.TPUStrategy)
    if steps_per_execution > 1 and on_tpu and not has_train_function(model):
        use_static_step_loop(model)


def use_static_step_loop(model):
    """Replaces the train and test functions of a compiled model: `model.steps_per_execution` steps per call, unchecked.

    Keras's functions check before every step whether data remains. Under `TPUStrategy`, that makes the batch size
    dynamic, so the compiler pads batches, and every batch passes through one device. Training data is endless; an
    evaluation checks on the host. Call it after a change of `steps_per_execution`, before `fit`.
    """
    strategy, steps = model.distribute_strategy, model.steps_per_execution

    @tf.function(autograph=False)
    def training(iterator):
        def step(index):
            strategy.run(model.train_step, args=(next(iterator),))
            return (index + 1,)

        tf.while_loop(lambda index: index < steps, step, (tf.constant(0),))

    @tf.function(autograph=False)
    def evaluation(batch):
        strategy.run(model.test_step, args=(batch,))

    def train(iterator):
        training(iterator)
        return model.get_metrics_result()

    def test(iterator):
        for index in range(steps):
            batch = next(iterator, None)  # not in the graph, where metrics of a missing batch would be added
            if batch is None and index == 0:
                raise StopIteration
            if batch is None:
                break
            evaluation(batch)
        return model.get_metrics_result()

    set_step_functions(model, train, test)
