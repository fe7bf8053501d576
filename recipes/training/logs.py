"""What a run says while it trains: more on Keras's progress bar, a CSV file, TensorBoard."""

import csv
import io
import os
import time

import keras
import tensorflow as tf

from keras_vit.recipes.remote_files import write_file

LOG = "log.csv"
REFRESH_SECONDS = 0.5


class Progress(keras.callbacks.Callback):
    """Adds "images_per_second" and "learning_rate" to the logs, and says at each epoch when the run will end.

    Keras's progress bar, the history and later callbacks show them: name this one first. The speed is that of training
    within an epoch, without the first execution, which compiles; the estimate also counts evaluations and checkpoints.
    The learning rate, which lives on the device, is asked for twice a second at most.

    Args:
        batch_size: Images an update, over all replicas.
        total_steps: Updates of the whole run.
        show: Whether to print the estimate, if `fit` prints at all.
    """

    async_safe = True  # Keras may call it beside the training

    def __init__(self, batch_size: int, total_steps: int, show: bool = True):
        super().__init__()
        self.batch_size = batch_size
        self.total_steps = total_steps
        self.show = show
        self.pace_since = None  # (step, time) after the first execution of this process

    def on_train_begin(self, logs=None):
        self.compiled = False

    def on_epoch_begin(self, epoch, logs=None):
        self.first_step = current_step(self.model)
        self.since = self.latest = (0, time.perf_counter())
        self.refreshed, self.shown = 0.0, {}
        if self.show and self.params.get("verbose") and (estimate := self.estimate()):
            print(estimate, flush=True)

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        self.latest = (batch + 1, now)
        if not self.compiled:
            self.compiled, self.since = True, self.latest
            self.pace_since = self.pace_since or (self.first_step + batch + 1, now)
        if now - self.refreshed >= REFRESH_SECONDS:
            self.refreshed, self.shown = now, self._figures()
        logs.update(self.shown)

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self._figures())

    def estimate(self) -> str:
        """When the run will end, or "" if nothing is known yet."""
        if self.pace_since is None or self.first_step <= self.pace_since[0]:
            return ""
        pace = (time.perf_counter() - self.pace_since[1]) / (self.first_step - self.pace_since[0])
        left = pace * (self.total_steps - self.first_step)
        end = time.strftime("%a %H:%M" if left > 3600 else "%H:%M:%S", time.localtime(time.time() + left))
        return f"Update {self.first_step:,} of {self.total_steps:,}; {_duration(left)} left, until {end}"

    def _figures(self):
        figures = {"learning_rate": float(self.model.optimizer.learning_rate)}
        steps, seconds = (last - first for last, first in zip(self.latest, self.since))
        if steps > 0 and seconds > 0:
            figures["images_per_second"] = steps * self.batch_size / seconds
        return figures


class CsvLog(keras.callbacks.Callback):
    """Keeps a table of all epochs of a run: epoch (from 1), step, then the logs of the updates since the row before.

    The file, local or on gs://, is written anew for every row, aside and then renamed, so it never ends in half a line.
    When a run goes on from a checkpoint, rows of steps after it go: these epochs come again. A row is written before
    the epoch's evaluation too, without its figures, for a run that ends there and goes on with the next epoch.

    Raises:
        ValueError: The file is there and no such table.
    """

    async_safe = True

    def __init__(self, file):
        super().__init__()
        self.file = str(file)

    def on_train_begin(self, logs=None):
        done = current_step(self.model)
        self.rows = [row for row in self._read() if int(row["step"]) <= done]

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.params.get("steps"):
            self.on_epoch_end(self.epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        step = current_step(self.model)
        self.rows = [row for row in self.rows if int(row["step"]) < step]
        self.rows.append({"epoch": epoch + 1, "step": step, **logs})
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_file(self.file, text.getvalue())

    def _read(self):
        if not tf.io.gfile.exists(self.file):
            return []
        with tf.io.gfile.GFile(self.file) as content:
            table = csv.DictReader(io.StringIO(content.read()))
        if "step" not in (table.fieldnames or ()):
            raise ValueError(f"{self.file} is not the log of a run: it has no column 'step'. Move it away.")
        return list(table)


def logging_callbacks(recipe, model, dataset, total_steps: int, chief: bool = True) -> list:
    """The callbacks of a recipe's logs, to be named after `NonfiniteSteps` and before those that save checkpoints.

    Args:
        recipe: Its run's folder gets log.csv and, if it says so, tensorboard/.
        model: What is trained: a `MaskedPatchModel`, a classifier, a `DistillationModel`.
        dataset: As `open_dataset` gives it; a few of its images are shown in TensorBoard.
        total_steps: Updates of the whole run.
        chief: Whether this process is the one that writes and prints.
    """
    logs = [Progress(recipe.data.batch_size, total_steps, show=chief)]
    if not chief or recipe.run.folder is None:
        return logs
    logs.append(CsvLog(os.path.join(recipe.run.folder, LOG)))
    if recipe.run.tensorboard:
        from keras_vit.recipes.training.tensorboard import TensorBoardLog, image_maker  # these draw, so load more

        folder = os.path.join(recipe.run.folder, "tensorboard")
        logs.append(TensorBoardLog(folder, image_maker(recipe, model, dataset)))
    return logs


def current_step(model) -> int:
    """Number of updates that a model has had."""
    return int(model.optimizer.iterations.numpy())


def _duration(seconds):
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
