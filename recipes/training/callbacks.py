"""The exponential moving average (EMA) of the weights in evaluations; the best weights; NaN and infinity.

The optimizer updates the EMA and skips steps with non-finite gradients.
"""

import math
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vit.recipes.keras_internals import ema_pairs
from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.processes.strategies import strategy_of
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.recipe import Run


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


class SwapEMA(keras.callbacks.Callback):
    """Swaps weights and EMA at the end of an epoch and of the training.

    Callbacks between two of these save and restore the weights that evaluations measured. What they restore at the end
    of the training remains, as the EMA.
    """

    def on_epoch_end(self, epoch, logs=None):
        _update_pairs(self.model, _swap)

    def on_train_end(self, logs=None):
        _update_pairs(self.model, _swap)


class BestWeights(keras.callbacks.Callback):
    """Finds the best validation, keeps its weights, and stops a run that no longer improves.

    `keras.callbacks.EarlyStopping` would forget all of it in a run that is interrupted, and at each call of `fit`. Here
    it is in `variables`, which are saved in checkpoints, in the memory of the host. Place it between two `SwapEMA`.

    Args:
        model: Compiled, with a built optimizer.
        run: Its `monitor`, `early_stopping_patience` and `restore_best_weights`.
    """

    def __init__(self, model, run: Run):
        super().__init__()
        self.set_model(model)
        self.run = run
        # A checkpoint at the end of an epoch is written before the validation, so the step of that is here, too.
        with tf.device("CPU"):
            self.validated, self.step, self.waited = (tf.Variable(0, dtype=tf.int64) for _ in range(3))
            self.value = tf.Variable(math.nan, dtype=tf.float64)
            weights = model.trainable_variables if run.restore_best_weights else []
            self.weights = [tf.Variable(ops.convert_to_numpy(weight)) for weight in weights]
        numbers = {"validated": self.validated, "step": self.step, "waited": self.waited, "value": self.value}
        self.variables = {**numbers, **{f"{i:05d}": weight for i, weight in enumerate(self.weights)}}

    def on_epoch_end(self, epoch, logs=None):
        step, value = int(self.model.optimizer.iterations.numpy()), float(logs[f"val_{self.run.monitor}"])
        best = float(self.value.numpy())
        self.validated.assign(step)
        self.waited.assign_add(1)
        if not (value >= best if self.run.monitor == "loss" else value <= best):  # the first is better than NaN
            self.value.assign(value)
            self.step.assign(step)
            self.waited.assign(0)
            for weight, copy in zip(self.model.trainable_variables, self.weights):
                copy.assign(ops.convert_to_numpy(weight))
        if Workers(strategy_of(self.model)).any(self.stops):  # all workers end together
            self.model.stop_training = True

    @property
    def stops(self) -> bool:
        """Whether the run ends here."""
        patience = self.run.early_stopping_patience
        return patience is not None and int(self.waited.numpy()) >= patience

    def restore(self):
        """Gives the model the weights of the best validation, if the run chooses them."""
        with strategy_of(self.model).scope():
            for weight, copy in zip(self.model.trainable_variables, self.weights):
                weight.assign(copy.numpy())

    def summary(self, total_steps: int) -> str:
        """Which validation was the best, and whether the run ended early."""
        last = int(self.validated.numpy())
        ended = f"Stopped early, at step {last:,} of {total_steps:,}. " if last < total_steps else ""
        best = f"val_{self.run.monitor} {float(self.value.numpy()):.4g} at step {int(self.step.numpy()):,}"
        return f"{ended}Best validation: {best}; the result has {'its' if self.weights else 'the last'} weights."


class OneTraining(keras.callbacks.CallbackList):
    """Callbacks for which several calls of `fit` are one training, which begins and ends once.

    Keras's own reset at each beginning what they know of earlier epochs.
    """

    def __init__(self, callbacks, total_steps: int):
        super().__init__(list(callbacks))
        self.total_steps = total_steps
        self.began = False

    def on_train_begin(self, logs=None):
        if not self.began:
            self.began = True
            super().on_train_begin(logs)

    def on_train_end(self, logs=None):
        if self.model.stop_training or int(self.model.optimizer.iterations.numpy()) >= self.total_steps:
            super().on_train_end(logs)


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
                # Before the next pair: gathers that run at the same time can block each other on CPUs.
                for changed in (variable, average):
                    changed.value.block_until_ready()
            else:
                strategy.extended.update(variable.value, function, args=(average.value,))


def _swap(variable, average):
    previous = ops.copy(variable)
    variable.assign(average)
    average.assign(previous)


FIX = (
    "Lower optimizer.learning_rate, increase optimizer.warmup_steps, set optimizer.global_clipnorm, or check the "
    "images for NaN."
)


class NonfiniteSteps(keras.callbacks.Callback):
    """Adds "nonfinite_steps", the number of steps skipped so far, to the logs; stops a run with too many in a row.

    For the optimizers of `keras_vit.recipes.training.optimizers`. The mean loss of an epoch with such a step is nan.
    With loss scaling also "loss_scale" and "overflows", the number of steps skipped because the scale was too large.
    Place it before `Checkpoints`, so that nothing is saved when it stops the run, and before callbacks that write logs.
    A validation whose metrics are not finite stops the run, too: all weights were finite, but the model has diverged.
    """

    def __init__(self, max_consecutive: int = 10, checkpoints=None):
        super().__init__()
        self.max_consecutive = max_consecutive
        self.checkpoints = checkpoints

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        consecutive = int(optimizer.consecutive_nonfinite_steps.numpy())
        if consecutive < self.max_consecutive:
            return
        raise FloatingPointError(
            f"The gradients of {consecutive} steps in a row, up to step {int(optimizer.iterations.numpy())}, were NaN "
            f"or infinite; these steps changed no weights. {FIX} {self._last_checkpoint()}"
        )

    def on_epoch_end(self, epoch, logs=None):
        if logs is None:
            return
        logs["nonfinite_steps"] = int(self.model.optimizer.nonfinite_steps.numpy())
        if loss_scale := self.model.optimizer.loss_scale:
            logs["overflows"] = int(loss_scale.overflows.numpy())
            logs["loss_scale"] = float(loss_scale.scale.numpy())
        step = int(self.model.optimizer.iterations.numpy())
        validation = {name: value for name, value in logs.items() if name.startswith("val_")}
        check_finite_metrics(validation, f"the validation after step {step}", self._last_checkpoint())

    def _last_checkpoint(self):
        last = self.checkpoints and self.checkpoints.latest
        return f"Last checkpoint: {last}." if last else "No checkpoint has been saved."


def warn_of_skipped_steps(model):
    """Prints a warning to stderr if a finished training skipped steps."""
    skipped, steps = (int(x.numpy()) for x in (model.optimizer.nonfinite_steps, model.optimizer.iterations))
    if skipped:
        print(
            f"Warning: the gradients of {skipped:,} of {steps:,} steps were NaN or infinite; these steps changed no "
            f"weights. {FIX}",
            file=sys.stderr,
        )


def check_finite_metrics(metrics: dict[str, float], what: str, more: str = ""):
    """Raises FloatingPointError if a metric is NaN or infinite."""
    if diverged := {name: float(value) for name, value in metrics.items() if not math.isfinite(value)}:
        values = ", ".join(f"{name} {value}" for name, value in diverged.items())
        raise FloatingPointError(f"Metrics of {what} are not finite ({values}): it has diverged. {FIX} {more}".strip())


def check_finite_weights(model, what: str):
    """Raises FloatingPointError if a weight of a model is NaN or infinite; `what` begins the message."""
    for variable in model.weights:
        values = keras.ops.convert_to_numpy(variable)
        if values.dtype.kind not in "iub" and not np.isfinite(values.astype("float32")).all():
            raise FloatingPointError(f"{what}: {variable.path} contains NaN or infinity. {FIX}")


def finite_epoch_metrics(history: dict[str, list[float]], model) -> dict[str, float]:
    """Metrics of the last epoch of a training without evaluation.

    The mean of an epoch with a skipped step is NaN, although the model is fine: such metrics are omitted.

    Raises:
        FloatingPointError: Metrics are not finite, but no step of the epoch was skipped, or the last two steps were:
            one might be due to its images.
    """
    metrics = {name: values[-1] for name, values in history.items()}
    counts = [history[name] for name in ("nonfinite_steps", "overflows") if name in history]
    skipped = any(np.diff(count, prepend=0)[-1] for count in counts)
    if not skipped or int(model.optimizer.consecutive_nonfinite_steps.numpy()) > 1:
        check_finite_metrics(metrics, "the last epoch")
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
