"""Exponential moving average (EMA) of the weights: the optimizer updates it, evaluations and results use it."""

import keras

from keras_vit.recipes.training.keras_internals import ema_pairs


class EvaluateWithEMA(keras.callbacks.Callback):
    """Evaluates with the EMA of the weights, in every validation of `fit` and in `evaluate`.

    Weights and EMA are swapped for the evaluation, exactly: `keras.callbacks.SwapEMAWeights` adds and subtracts, which
    rounds the weights that training continues with. Does nothing without `use_ema` in the optimizer.

    Place it before callbacks that save or read weights at the end of an evaluation.
    """

    def on_test_begin(self, logs=None):
        for strategy, variable, average in _pairs(self.model):
            strategy.extended.update(variable, _swap, args=(average,))

    def on_test_end(self, logs=None):
        self.on_test_begin()


def use_ema_weights(model):
    """Replaces a model's weights by their EMA, at the end of training; does nothing without `use_ema`.

    Checkpoints hold the weights themselves, which a resumed run continues with.
    """
    for strategy, variable, average in _pairs(model):
        strategy.extended.update(variable, lambda value, mean: value.assign(mean), args=(average,))


def _pairs(model):
    """Yields the strategy, a trainable variable and its EMA, both as TensorFlow variables."""
    optimizer = model.optimizer
    if not (getattr(optimizer, "use_ema", False) and optimizer.built):
        return
    strategy = model.distribute_strategy
    with strategy.scope():
        for variable, average in ema_pairs(optimizer):
            yield strategy, variable.value, average.value


def _swap(value, mean):
    previous = value.read_value()
    value.assign(mean)
    mean.assign(previous)
