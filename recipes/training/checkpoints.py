"""Checkpoints by step, and what becomes of a run when the machine is taken away."""

import os
import re
import signal
import threading

import keras
import numpy as np
import tensorflow as tf

from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.remote_files import error_summary
from keras_vit.recipes.training.run_folder import find_checkpoints, list_folder

# What a run exits with after SIGTERM, once it has saved: "try again later" (EX_TEMPFAIL of sysexits.h).
TERMINATED = 75
# Not the fault of a file: those behind it would not be found either.
UNREACHABLE = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnimplementedError,
)


class Checkpoints(keras.callbacks.Callback):
    """Saves weights, optimizer and the states of random generators, and restores them, bit for bit.

    The optimizer holds the running means of the weights and the step, which is the position in the data too. TensorFlow
    writes a checkpoint aside and names it when it is whole; older ones go only then. Of several workers the chief alone
    writes (all variables are equal on all of them) and all restore, from a folder that all of them see.

    After SIGTERM the run saves at the end of the steps at hand (of an execution, or of a part of an evaluation, whose
    figures are dropped) and exits with the status `TERMINATED`; several workers do so together, whichever was told.

    Args:
        folder: Where to, local or "gs://...".
        every_steps: Updates between two checkpoints; one is always written at the end.
        keep: Number of checkpoints that stay.

    Raises:
        OSError: A checkpoint cannot be written or none can be read; those that are there stay.
        FloatingPointError: The weights are NaN or infinite, so they are not saved.
    """

    def __init__(self, folder, every_steps: int = 1000, keep: int = 3):
        super().__init__()
        self.folder = str(folder)
        self.every_steps = every_steps
        self.keep = keep
        self.terminated = False
        self.saved_step = 0
        self.latest = None  # path of the last checkpoint that was written or restored
        self.former_handler = None

    def restore(self, model) -> int:
        """Makes the model, compiled and its optimizer built, what it was at the last checkpoint; returns its step.

        A checkpoint that is damaged, by a power cut for example, is named in the log and the one before is taken.
        """
        self.workers = Workers(model.distribute_strategy)
        states = {
            "model": numbered_variables(model.variables),
            "optimizer": numbered_variables(model.optimizer.variables),
        }
        try:
            if self.workers.chief:
                tf.io.gfile.makedirs(self.folder)
                self._remove_unfinished()
            self.manager = tf.train.CheckpointManager(
                tf.train.Checkpoint(**states), self.folder, max_to_keep=self.keep, checkpoint_name="step"
            )
            found = find_checkpoints(self.folder)
            self.latest = next((path for path in found if self._restored(path)), None)
        except tf.errors.OpError as error:
            raise OSError(
                f"The folder {self.folder} cannot be read: {error_summary(error)}. Mend the access to it."
            ) from error
        if found and not self.latest:
            raise OSError(f"None of the {len(found)} checkpoints in {self.folder} can be read. Choose another folder.")
        self.saved_step = int(model.optimizer.iterations.numpy()) if self.latest else 0
        self.workers.check_equal(self.saved_step, self.folder)
        return self.saved_step

    def on_train_begin(self, logs=None):
        if threading.current_thread() is threading.main_thread():  # others cannot
            self.former_handler = signal.signal(signal.SIGTERM, self._terminate)

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        step = int(optimizer.iterations.numpy())
        stop = self.workers.any(self.terminated)
        due = step - self.saved_step >= self.every_steps
        # A run whose gradients are NaN from now on should find checkpoints from before that.
        if stop or (due and not int(optimizer.consecutive_nonfinite_steps.numpy())):
            self._save()
        if stop:
            self.model.stop_training = True

    def on_test_batch_end(self, batch, logs=None):
        if self.workers.any(self.terminated):
            self.model.stop_evaluating = True

    def on_test_end(self, logs=None):
        self._leave_if_terminated()  # before anyone sees the figures of half an evaluation

    def on_train_end(self, logs=None):
        self._save()
        self._leave_if_terminated()
        self.release()

    def release(self):
        """Gives SIGTERM back its former meaning; call it when a training ends with an exception."""
        if self.former_handler is not None:
            signal.signal(signal.SIGTERM, self.former_handler)
            self.former_handler = None

    def _terminate(self, *_):
        self.terminated = True

    def _leave_if_terminated(self):
        if self.workers.any(self.terminated):
            self._save()
            self.release()
            print(f"\nTerminated. Everything up to step {self.saved_step} is in {self.folder}; go on with resume=True.")
            raise SystemExit(TERMINATED)

    def _restored(self, path) -> bool:
        try:
            self.manager.checkpoint.restore(path).assert_consumed()
        except UNREACHABLE:
            raise
        except (tf.errors.OpError, IndexError) as error:  # IndexError: a file is too short
            print(f"{path} is damaged, so the checkpoint before it is taken: {error_summary(error)}")
            return False
        except AssertionError as error:
            raise ValueError(
                f"{path} holds other variables than this model and optimizer. It was written by another version of "
                "keras_vit or of its recipe: use that one, or choose another folder."
            ) from error
        return True

    def _save(self):
        step = int(self.model.optimizer.iterations.numpy())
        if step <= self.saved_step:
            return
        last = f"The last good checkpoint is {self.latest}." if self.latest else "There is no checkpoint yet."
        if not all(np.isfinite(weight.numpy()).all() for weight in self.model.trainable_variables):
            raise FloatingPointError(
                f"At step {step} there are weights that are NaN or infinite, so they are not saved. Lower "
                f"learning_rate or lengthen warmup_steps. {last}"
            )
        if self.workers.chief:
            try:
                self.manager.save(checkpoint_number=step)
            except (tf.errors.OpError, OSError) as error:
                self._remove_unfinished()
                raise OSError(
                    f"The checkpoint of step {step} cannot be written to {self.folder}: {error_summary(error)}. Make room or "
                    f"mend the access to it, then go on with resume=True. {last}"
                ) from error
        self.saved_step, self.latest = step, os.path.join(self.folder, f"step-{step}")

    def _remove_unfinished(self):
        """Removes what TensorFlow had not renamed yet, of a run that was killed or of a disk that is full."""
        for name in list_folder(self.folder):
            if re.match(r"step-\d+_temp", name):
                tf.io.gfile.rmtree(os.path.join(self.folder, name))


def open_checkpoints(run) -> Checkpoints | None:
    """The checkpoints of a recipe's `run`, in its folder; None if it names none."""
    return Checkpoints(run.folder, run.checkpoint_steps, run.keep_checkpoints) if run.folder else None


def numbered_variables(variables) -> dict:
    """Variables of TensorFlow, random generators' states among them, by number: Keras's names hold a count of the
    models in a process.
    """
    return {f"{i:05d}": variable.value for i, variable in enumerate(variables)}
