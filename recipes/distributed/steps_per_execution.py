"""Several steps in one call."""

import tensorflow as tf


def set_steps_per_execution(model, steps: int, wanted: int):
    """Sets how many steps of a `fit` of `steps` are one call: `wanted` if that divides them, else 1."""
    wanted = wanted if steps % wanted == 0 else 1
    if model.steps_per_execution != wanted:
        model.steps_per_execution = wanted
        # Made for the former number: they would leave out batches.
        model.train_function = model.test_function = model.predict_function = None
    if wanted > 1 and model.train_function is None and isinstance(model.distribute_strategy, tf.distribute.TPUStrategy):
        use_static_step_loop(model)


def use_static_step_loop(model):
    """Gives a compiled model its own train and test functions, of `model.steps_per_execution` steps a call.

    Keras's ask before every step whether there is data left. Under `TPUStrategy` that makes batches of unknown size of
    it, which the compiler pads, and sends every batch through one device. Training data never ends; an evaluation asks
    from the host. Call it after whatever changes `steps_per_execution`, before `fit`.
    """
    strategy, steps = model.distribute_strategy, model.steps_per_execution

    @tf.function(autograph=False)
    def training(iterator):
        def step(number):
            strategy.run(model.train_step, args=(next(iterator),))
            return (number + 1,)

        tf.while_loop(lambda number: number < steps, step, (tf.constant(0),))

    @tf.function(autograph=False)
    def evaluation(batch):
        strategy.run(model.test_step, args=(batch,))

    def train(iterator):
        training(iterator)
        return model.get_metrics_result()

    def test(iterator):
        for number in range(steps):
            batch = next(iterator, None)  # not in the graph, where counts of a batch that is not there are added
            if batch is None and number == 0:
                raise StopIteration
            if batch is None:
                break
            evaluation(batch)
        return model.get_metrics_result()

    model.train_function, model.test_function = train, test
