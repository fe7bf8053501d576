"""Steps whose gradients are NaN or infinite: skipped by the optimizer, counted, and the end of a run if they stay."""

import keras


class NonfiniteSteps(keras.callbacks.Callback):
    """Adds "nonfinite_steps", the number of steps that were skipped so far, to the logs, and stops a run of nothing else.

    For optimizers of `keras_vit.recipes.training.optimizers`. The mean loss of an epoch with a bad step reads nan. Name it
    before `Checkpoints`, so that nothing is saved when it stops the run, and before callbacks that write logs.

    Args:
        most_in_a_row: So many bad steps in a row stop the run, looked at after each execution of steps.
        checkpoints: The run's `Checkpoints`, if any, for the message.

    Raises:
        FloatingPointError: The gradients of so many steps in a row were not finite.
    """

    def __init__(self, most_in_a_row: int = 10, checkpoints=None):
        super().__init__()
        self.most_in_a_row = most_in_a_row
        self.checkpoints = checkpoints

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        in_a_row = int(optimizer.consecutive_nonfinite_steps.numpy())
        if in_a_row < self.most_in_a_row:
            return
        last = self.checkpoints and self.checkpoints.latest
        raise FloatingPointError(
            f"The gradients of {in_a_row} steps in a row, up to step {int(optimizer.iterations.numpy())}, were NaN or "
            "infinite; the weights were left as they were before. Lower learning_rate, lengthen warmup_steps, set "
            "global_clipnorm, or look for images with NaN. "
            + (f"The last good checkpoint is {last}." if last else "There is no checkpoint.")
        )

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["nonfinite_steps"] = int(self.model.optimizer.nonfinite_steps.numpy())
