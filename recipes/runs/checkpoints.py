"""Checkpoints: saved every few steps, on SIGTERM, on Ctrl-C and at the end, and restored bit for bit."""

import os
import re
import signal
from contextlib import suppress

import keras
import numpy as np
import tensorflow as tf

from keras_vit.atomic_write import literal_folder
from keras_vit.messages import error_summary
from keras_vit.recipes.processes.jax_devices import whole_array
from keras_vit.recipes.processes.strategies import strategy_of
from keras_vit.recipes.processes.watch import TERMINATED
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.runs.agreement import check_equal
from keras_vit.recipes.runs.folder import check_owner, find_checkpoints, list_folder
from keras_vit.recipes.runs.identity import RunIdentity
from keras_vit.recipes.runs.stop_signals import StopSignals

# Errors that are not the fault of one file: older checkpoints could not be read either.
UNREACHABLE = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnimplementedError,
)


class TrainingState:
    """The variables of a compiled model and its optimizer, among them random-generator states.

    With Keras on TensorFlow they are its own variables; with JAX copies of all of these, in the memory of the host.
    """

    def __init__(self, model):
        self.with_jax = keras.backend.backend() == "jax"
        self.pairs: list[tuple] = []  # a variable of Keras and its copy
        self.groups = {"model": self._numbered(model.variables), "optimizer": self._numbered(model.optimizer.variables)}

    def copy_from_model(self):
        """Copies the current values, before a checkpoint is written; all processes must call this."""
        for variable, copy in self.pairs:
            copy.assign(whole_array(variable))

    def copy_to_model(self):
        """Copies the values back, after a checkpoint was read."""
        for variable, copy in self.pairs:
            variable.assign(copy.numpy())

    def _numbered(self, variables):
        return {f"{i:05d}": self._tensorflow_variable(variable) for i, variable in enumerate(variables)}

    def _tensorflow_variable(self, variable):
        if not self.with_jax:
            return variable.value
        value = whole_array(variable)
        # Keras's integers are int64 with TensorFlow, also the states of random generators, which are unsigned with JAX:
        # a checkpoint of either can be read with the other.
        copy = tf.Variable(value.astype("int64") if value.dtype.kind in "iu" else value)
        self.pairs.append((variable, copy))
        return copy


class Checkpoints(keras.callbacks.Callback):
    """Saves and restores weights, optimizer state and random-generator states, bit for bit.

    The optimizer state includes the EMA of the weights and the step, which is also the position in the data. A
    checkpoint is written under a temporary name and renamed when complete; older ones are deleted only then. With
    several workers, only the chief writes (variables are equal on all of them); all restore, from the same folder.
    Which checkpoints exist is known from their names: TensorFlow's file "checkpoint", a list that a power failure may
    leave empty, is neither written nor read.

    After SIGTERM, SIGHUP or Ctrl-C, the run saves at the end of the current execution of steps (or part of an
    evaluation, whose metrics are discarded), then exits with status `TERMINATED` or raises KeyboardInterrupt.
    One worker that gets such a signal stops all of them.

    Args:
        more: TensorFlow's variables to save and restore with those of the model, by name or as dicts of them.
    """

    def __init__(self, folder, every_steps: int = 1000, keep: int = 3, identity: RunIdentity | None = None, more=None):
        super().__init__()
        self.folder = str(folder)
        self.every_steps = every_steps
        self.keep = keep
        self.identity = identity
        self.more = more or {}
        self.signals = StopSignals()
        self.saved_step = 0
        self.latest: str | None = None  # path of the last checkpoint that was written or restored

    def restore(self, model) -> int:
        """Restores the newest checkpoint, if any, into a compiled model with a built optimizer; returns its step.

        If a checkpoint is damaged, for example by a power failure, this is printed and the one before it is used.
        """
        self.workers = Workers(strategy_of(model))
        try:
            if self.workers.chief:
                tf.io.gfile.makedirs(self.folder)
                self._remove_unfinished()
            self.state = TrainingState(model)
            run = {"run": tf.Variable(self.identity.text())} if self.identity else {}
            self.checkpoint = tf.train.Checkpoint(**self.state.groups, **run, **self.more)
            paths = find_checkpoints(self.folder)
            self.latest = next((path for path in paths if self._restored(path)), None)
        except tf.errors.OpError as error:
            raise OSError(
                f"The folder {self.folder} cannot be read: {error_summary(error)}. Check the permissions."
            ) from error
        if self.latest:
            self.state.copy_to_model()
        if paths and not self.latest:
            raise OSError(f"None of the {len(paths)} checkpoints in {self.folder} can be read. Choose another folder.")
        self.saved_step = int(model.optimizer.iterations.numpy()) if self.latest else 0
        check_equal({f"the newest step in {self.folder}, which all must share": self.saved_step}, self.workers)
        return self.saved_step

    def on_train_begin(self, logs=None):
        self.signals.install(self.model.steps_per_execution)

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        step = int(optimizer.iterations.numpy())
        # Here, and not at the end of the epoch, for which Keras would draw a full progress bar.
        self._exit_if_stopped()
        due = step - self.saved_step >= self.every_steps
        # If gradients stay NaN from now on, the remaining checkpoints are from before that.
        if due and not int(optimizer.consecutive_nonfinite_steps.numpy()):
            self._save()

    def on_test_batch_end(self, batch, logs=None):
        if self._stopped():
            self.model.stop_evaluating = True

    def on_test_end(self, logs=None):
        self._exit_if_stopped()  # before other callbacks get the metrics of a partial evaluation

    def on_train_end(self, logs=None):
        self._save()
        self._exit_if_stopped()
        self.release()

    def release(self):
        """Restores the previous handlers of signals; call it when training ends with an exception."""
        self.signals.release()

    def _stopped(self) -> bool:
        """Whether a worker received a signal."""
        return self.workers.any(self.signals.received is not None)

    def _exit_if_stopped(self):
        if self._stopped():
            self._save()
            self.release()
            saved = f"Saved step {self.saved_step} in {self.folder}."
            if self.signals.received == signal.SIGINT:
                interrupt = KeyboardInterrupt(saved)
                interrupt.add_note("run.resume=True resumes it.")
                raise interrupt
            print(f"\nTerminated. {saved}", flush=True)  # before what the command says about it on standard error
            raise SystemExit(TERMINATED)

    def _restored(self, path) -> bool:
        try:
            with literal_folder(self.folder) as folder:
                self.checkpoint.read(os.path.join(folder, os.path.basename(path))).assert_consumed()
        except UNREACHABLE:
            raise
        except (tf.errors.OpError, IndexError) as error:  # IndexError: a file is too short
            print(f"{path} is damaged, using the checkpoint before it: {error_summary(error)}")
            return False
        except (AssertionError, ValueError) as error:  # ValueError: another shape
            raise ValueError(
                f"The variables in {path} do not match this model and optimizer. It was written by another version of "
                "keras_vit or for another recipe: use that one, or choose another folder."
            ) from error
        if self.identity:
            self.identity.check_checkpoint(self.checkpoint.run.numpy().decode(), path)
        return True

    def _save(self):
        step = int(self.model.optimizer.iterations.numpy())
        if step <= self.saved_step:
            return
        last = f"Last checkpoint: {self.latest}." if self.latest else "No checkpoint has been saved."
        if not all(np.isfinite(weight.numpy()).all() for weight in self.model.trainable_variables):
            raise FloatingPointError(
                f"At step {step}, weights are NaN or infinite, so they are not saved. Lower optimizer.learning_rate or "
                f"increase optimizer.warmup_steps. {last}"
            )
        path = os.path.join(self.folder, f"step-{step}")
        self.state.copy_from_model()
        if self.workers.chief:
            if self.identity:
                check_owner(self.identity, self.folder)
            try:
                with literal_folder(self.folder) as folder:
                    self.checkpoint.write(os.path.join(folder, os.path.basename(path)))
                self._remove_old(step)
            except (tf.errors.OpError, OSError) as error:
                with suppress(tf.errors.OpError):  # of a folder that is gone or read-only
                    self._remove_unfinished()
                raise OSError(
                    f"The checkpoint of step {step} cannot be written to {self.folder}: {error_summary(error)}. Check "
                    f"the free space and the permissions, then resume with run.resume=True. {last}"
                ) from error
        self.saved_step, self.latest = step, path

    def _remove_old(self, step):
        """Removes old checkpoints; those of later steps are damaged, and will be replaced, so they do not count."""
        names = [os.path.basename(path) for path in find_checkpoints(self.folder)]
        old = [name for name in names if int(name.rpartition("-")[2]) <= step][self.keep :]
        for file in list_folder(self.folder):
            if file.partition(".")[0] in old:
                tf.io.gfile.remove(os.path.join(self.folder, file))

    def _remove_unfinished(self):
        """Removes incomplete checkpoints of a run that was killed or whose disk is full."""
        for name in list_folder(self.folder):
            if re.match(r"step-\d+_temp", name):
                tf.io.gfile.rmtree(os.path.join(self.folder, name))
