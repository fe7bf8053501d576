"""Exponential moving average (EMA) of the weights: the optimizer updates it, evaluations and results use it."""

import keras
from keras import ops

from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import strategy_of
from keras_vit.recipes.training.keras_internals import ema_pairs


class EvaluateWithEMA(keras.callbacks.Callback):
    """Evaluates with the EMA of the weights, in every validation of `fit` and in `evaluate`.

    Weights and EMA are swapped for the evaluation, exactly: `keras.callbacks.SwapEMAWeights` adds and subtracts, which
    rounds the weights that training continues with. Does nothing without `use_ema` in the optimizer.

    Place it before callbacks that save or read weights at the end of an evaluation.
    """

    def on_test_begin(self, logs=None):
        _update_pairs(self.model, _swap)

    def on_test_end(self, logs=None):
        self.on_test_begin()


def use_ema_weights(model):
    """Replaces a model's weights by their EMA, at the end of training; does nothing without `use_ema`.

    Checkpoints hold the weights themselves, which a resumed run continues with.
    """
    # A copy, since on JAX both would be one array, which a step donates twice.
    _update_pairs(model, lambda variable, average: variable.assign(ops.copy(average)))


def _update_pairs(model, function):
    """Calls function(variable, average) for each trainable variable and its EMA, on each device that has copies."""
    optimizer, strategy = model.optimizer, strategy_of(model)
    if not (getattr(optimizer, "use_ema", False) and optimizer.built):
        return
    with strategy.scope():
        for variable, average in ema_pairs(optimizer):
            if isinstance(strategy, JaxDevices):
                function(variable, average)
            else:
                strategy.extended.update(variable.value, function, args=(average.value,))


def _swap(variable, average):
    previous = ops.copy(variable)
    variable.assign(average)
    average.assign(previous)
