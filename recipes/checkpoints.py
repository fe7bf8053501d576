"""Checkpoints by step, and what becomes of a run when the machine is taken away."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import keras
import tensorflow as tf

# What a run exits with after SIGTERM, once it has saved: "try again later" (EX_TEMPFAIL of sysexits.h).
TERMINATED = 75
RECIPE = "recipe.json"


class Checkpoints(keras.callbacks.Callback):
    """Saves weights, optimizer and the states of random generators, and restores them, bit for bit.

    TensorFlow writes a checkpoint aside and names it when it is whole; older ones go only then. After SIGTERM the run
    saves at the end of the step at hand and exits with the status `TERMINATED`.

    Args:
        folder: Where to, local or "gs://...".
        every_steps: Updates between two checkpoints; one is always written at the end.
        keep: Number of checkpoints that stay.
    """

    def __init__(self, folder, every_steps: int = 1000, keep: int = 3):
        super().__init__()
        self.folder = str(folder)
        self.every_steps = every_steps
        self.keep = keep
        self.terminated = False
        self.saved_step = 0

    def restore(self, model) -> int:
        """Makes the model, compiled and its optimizer built, what it was at the last checkpoint; returns its step."""
        states = {"model": _states(model.variables), "optimizer": _states(model.optimizer.variables)}
        self.manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(**states), self.folder, max_to_keep=self.keep, checkpoint_name="step"
        )
        if self.manager.latest_checkpoint:
            self.manager.checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()
            self.saved_step = int(model.optimizer.iterations)
        return self.saved_step

    def on_train_begin(self, logs=None):
        self.former_handler = signal.signal(signal.SIGTERM, self._terminate)

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if self.terminated or step - self.saved_step >= self.every_steps:
            self._save(step)
        if self.terminated:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        signal.signal(signal.SIGTERM, self.former_handler)
        self._save(int(self.model.optimizer.iterations))
        if self.terminated:
            print(f"\nTerminated. Everything up to step {self.saved_step} is in {self.folder}; go on with resume=True.")
            raise SystemExit(TERMINATED)

    def _terminate(self, *_):
        self.terminated = True

    def _save(self, step):
        if step > self.saved_step:
            self.manager.save(checkpoint_number=step)
            self.saved_step = step


def open_run(recipe) -> Checkpoints | None:
    """The checkpoints of a recipe's folder, with the recipe beside them; None if the recipe names no folder.

    Raises:
        ValueError: There are checkpoints already and the recipe does not say resume, or it is another recipe's folder.
    """
    run = recipe.run
    if run.folder is None:
        return None
    wanted = asdict(recipe)
    wanted["run"].pop("resume")
    file = Path(run.folder) / RECIPE
    with_checkpoints = tf.train.latest_checkpoint(run.folder) is not None
    if with_checkpoints and not run.resume:
        raise ValueError(
            f"{run.folder} has checkpoints of a former run. Go on with resume=True, or choose another folder."
        )
    if with_checkpoints:
        found = json.loads(tf.io.read_file(str(file)).numpy())
        differing = sorted(name for name in wanted if json.loads(json.dumps(wanted[name])) != found.get(name))
        if differing:
            raise ValueError(
                f"{file} is the recipe of another run; it differs in {', '.join(differing)}. Resume with the same "
                "recipe, or choose another folder."
            )
    else:
        tf.io.gfile.makedirs(run.folder)
        aside = f"{file}.{os.getpid()}"
        tf.io.write_file(aside, json.dumps(wanted, indent=2) + "\n")
        tf.io.gfile.rename(aside, str(file), overwrite=True)
    return Checkpoints(run.folder, run.checkpoint_steps, run.keep_checkpoints)


def _states(variables) -> dict:
    """Variables of TensorFlow, random generators' states among them, by number: Keras's names hold a count of the
    models in a process.
    """
    return {f"{i:05d}": variable.value for i, variable in enumerate(variables)}
