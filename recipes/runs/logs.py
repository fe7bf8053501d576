"""Logs during training: speed, learning rate and ETA on the console, metrics of every epoch in log.csv."""

import csv
import io
import os
import time

import keras
import tensorflow as tf

from keras_vit.messages import error_summary
from keras_vit.progress import LINE_SECONDS, duration
from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.remote_files import write_file
from keras_vit.recipes.runs.open_run import OpenRun

LOG = "log.csv"
REFRESH_SECONDS = 0.5


class Progress(keras.callbacks.Callback):
    """Adds "images_per_second" and "learning_rate" to the logs, and prints the ETA at the start of each epoch.

    It prints only if `fit` does. The first epoch has no ETA yet: there it prints after how many steps the progress bar
    moves, which looks hung before.

    Place it first: Keras's progress bar, the history and later callbacks then include them. The speed is that of
    training within an epoch, without the first execution, which compiles; the ETA includes evaluations and checkpoints.
    The learning rate is read from the device at most twice a second.
    """

    async_safe = True  # Keras may call it in a thread other than that of the training

    def __init__(self, batch_size: int, total_steps: int):
        super().__init__()
        self.batch_size = batch_size
        self.total_steps = total_steps
        self.pace_since = None  # (step, time) after the first execution of this process

    def on_train_begin(self, logs=None):
        self.compiled = False

    def on_epoch_begin(self, epoch, logs=None):
        self.first_step = current_step(self.model)
        self.since = self.latest = (0, time.perf_counter())
        self.refreshed, self.shown = 0.0, {}
        if self.params.get("verbose"):
            if message := self.estimate() if self.pace_since else self._first_steps():
                print(message, flush=True)

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        self.latest = (batch + 1, now)
        if not self.compiled:
            self.compiled, self.since = True, self.latest
            self.pace_since = self.pace_since or (self.first_step + batch + 1, now)
        if now - self.refreshed >= REFRESH_SECONDS:
            self.refreshed, self.shown = now, self._values()
        logs.update(self.shown)

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self._values())

    def estimate(self) -> str:
        """The current step, the remaining time and the time of day at the end; "" before the speed is known."""
        if self.pace_since is None or self.first_step <= self.pace_since[0]:
            return ""
        pace = (time.perf_counter() - self.pace_since[1]) / (self.first_step - self.pace_since[0])
        remaining = pace * (self.total_steps - self.first_step)
        end = time.strftime("%a %H:%M" if remaining > 3600 else "%H:%M:%S", time.localtime(time.time() + remaining))
        return f"Step {self.first_step:,}/{self.total_steps:,}, ETA {duration(remaining)} ({end})"

    def _first_steps(self) -> str:
        count = getattr(self.model, "steps_per_execution", 1)
        shown = "the first step" if count == 1 else f"each {count:,} steps"
        return f"Reading images and compiling. Progress is shown after {shown}."

    def _values(self):
        values = {"learning_rate": float(self.model.optimizer.learning_rate)}
        steps, seconds = (last - first for last, first in zip(self.latest, self.since))
        if steps > 0 and seconds > 0:
            values["images_per_second"] = steps * self.batch_size / seconds
        return values


class ProgressBar(keras.callbacks.ProgbarLogger):
    """Keras's progress bar without its line "Epoch 1/8", which counts rows of log.csv and not epochs of the data.

    With `verbose=2`, which prints a line at the end of an epoch, it also prints one after each 30 seconds.
    """

    async_safe = True

    def set_params(self, params):
        """Tells the bar that there is one epoch, of which Keras prints no number."""
        super().set_params({**params, "epochs": 1})

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.printed = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Updates the bar, or prints a line now and then."""
        super().on_train_batch_end(batch, logs)
        if self.verbose == 2 and time.perf_counter() - self.printed >= LINE_SECONDS:
            self.printed = time.perf_counter()
            values = " - ".join(f"{name}: {float(value):.4g}" for name, value in (logs or {}).items())
            print(f"{batch + 1}/{self.target} - {values}", flush=True)


class CsvLog(keras.callbacks.Callback):
    """Writes a table with a row per epoch: epoch (from 1), step, then the logs of the steps since the previous row.

    The file, local or on gs://, is rewritten for every row under a temporary name and renamed, so it is always
    complete. When a run resumes from a checkpoint, rows of later steps are removed: these epochs are trained again. A
    row is also written before the epoch's evaluation, without its metrics, in case the run is interrupted there: a
    resumed run evaluates first, and `complete` adds them. The first row after a resume within an epoch averages the
    steps since the checkpoint only: checkpoints do not store the sums of Keras's metrics.
    """

    async_safe = True

    def __init__(self, file):
        super().__init__()
        self.file = str(file)

    def on_train_begin(self, logs=None):
        done = current_step(self.model)
        self.rows = [row for row in read_log(self.file) if int(row["step"]) <= done]

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.params.get("steps"):
            self.on_epoch_end(self.epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        step = current_step(self.model)
        self.rows = [row for row in self.rows if int(row["step"]) < step]
        self.rows.append({"epoch": epoch + 1, "step": step, **logs})
        self._write()

    def complete(self, step: int, metrics: dict[str, float]):
        """Adds metrics to the row of a step."""
        self.rows = [row | metrics if int(row["step"]) == step else row for row in read_log(self.file)]
        self._write()

    def _write(self):
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        try:
            tf.io.gfile.makedirs(os.path.dirname(self.file))
            write_file(self.file, text.getvalue())
        except (OSError, tf.errors.OpError) as error:  # the checkpoint, written next, matters more
            print(f"Warning: {error_summary(error)} The next epoch writes this row, too.")


def read_log(file: str) -> list[dict[str, str]]:
    """The rows of a `CsvLog`; none if the file does not exist."""
    if not tf.io.gfile.exists(file):
        return []
    with tf.io.gfile.GFile(file) as content:
        table = csv.DictReader(io.StringIO(content.read()))
    if "step" not in (table.fieldnames or ()):
        raise ValueError(f"{file} is not the log of a run: it has no column 'step'. Move or delete it.")
    return list(table)


def current_step(model) -> int:
    """Number of optimizer steps of a model so far."""
    return int(model.optimizer.iterations.numpy())


def log_callbacks(run: OpenRun, model) -> list:
    """The callbacks of a run that log: on the chief into its folder, if it has one."""
    recipe, workers = run.recipe, run.workers
    logs: list = [Progress(recipe.data.batch_size, run.data.total_steps)]
    if not workers.chief or run.folder is None:
        return logs
    logs.append(CsvLog(os.path.join(run.folder, LOG)))
    if recipe.run.tensorboard:
        from keras_vit.recipes.runs.tensorboard import TensorBoardLog, image_function  # imports drawing libraries

        folder = os.path.join(run.folder, "tensorboard")
        # With JAX every process computes a part of the model's output, and only the chief draws.
        draws = not (workers.several and isinstance(run.strategy, JaxDevices))
        logs.append(TensorBoardLog(folder, image_function(recipe, model, run.data.dataset) if draws else None))
    return logs
