"""Running means of weights (Polyak): training keeps them in the optimizer, evaluation and results use them."""

import keras


class EvaluateWithEMA(keras.callbacks.Callback):
    """Evaluates the running means of the weights in every validation of `fit`, and in `evaluate`.

    They change places with the weights for that time, exactly: `keras.callbacks.SwapEMAWeights` adds and subtracts,
    which rounds the weights that training goes on from. Does nothing for an optimizer without `use_ema`.

    Name it before callbacks that save or read weights at the end of an evaluation.
    """

    def on_test_begin(self, logs=None):
        for strategy, variable, average in _pairs(self.model):
            strategy.extended.update(variable, _swap, args=(average,))

    def on_test_end(self, logs=None):
        self.on_test_begin()


def use_ema_weights(model):
    """Gives a model the running means of its weights for good; without `use_ema` in its optimizer, changes nothing.

    For the end of a training: checkpoints hold the weights that training goes on from.
    """
    for strategy, variable, average in _pairs(model):
        strategy.extended.update(variable, lambda value, mean: value.assign(mean), args=(average,))


def _pairs(model):
    """The strategy, a trained variable and its running mean, both of TensorFlow."""
    optimizer = model.optimizer
    if not (getattr(optimizer, "use_ema", False) and optimizer.built):
        return
    strategy = model.distribute_strategy
    with strategy.scope():
        for variable, average in zip(optimizer._trainable_variables, optimizer._model_variables_moving_average):
            yield strategy, variable.value, average.value


def _swap(value, mean):
    former = value.read_value()
    value.assign(mean)
    mean.assign(former)
