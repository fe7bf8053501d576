"""Steps with NaN or infinite gradients: the optimizer skips them, a callback counts them and stops the run."""

import keras


class NonfiniteSteps(keras.callbacks.Callback):
    """Adds "nonfinite_steps", the number of steps skipped so far, to the logs; stops a run with too many in a row.

    For the optimizers of `keras_vit.recipes.training.optimizers`. The mean loss of an epoch with such a step is nan.
    Place it before `Checkpoints`, so that nothing is saved when it stops the run, and before callbacks that write logs.

    Args:
        max_consecutive: This number of nonfinite steps in a row stops the run; checked after each execution of steps.
        checkpoints: The run's `Checkpoints`, if any, for the message.

    Raises:
        FloatingPointError: The gradients of `max_consecutive` steps in a row were not finite.
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
        last = self.checkpoints and self.checkpoints.latest
        raise FloatingPointError(
            f"The gradients of {consecutive} steps in a row, up to step {int(optimizer.iterations.numpy())}, were NaN "
            "or infinite; these steps changed no weights. Lower optimizer.learning_rate, increase "
            "optimizer.warmup_steps, set optimizer.global_clipnorm, or check the images for NaN. "
            + (f"Last checkpoint: {last}." if last else "No checkpoint has been saved.")
        )

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["nonfinite_steps"] = int(self.model.optimizer.nonfinite_steps.numpy())
