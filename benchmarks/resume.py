"""Masked-patch pre-training killed (SIGKILL) after a random step and resumed, compared with an uninterrupted run.

Command: python benchmarks/resume.py
Each run is a separate process, with dropout, EMA, gradient accumulation and a checkpoint every 4 of 30 steps.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_vit.recipes import fit
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run

STEPS, KILLED = 30, 5


class Kill(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(data_dir, folder, out, kill_at):
    recipe = MaskedPatch(
        architecture=Architecture("Ti/2", depth=2, width=24, mlp_dim=48, num_heads=3, dropout=0.1),
        data=Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=40, min_crop_area=0.5, flip=False),
        optimizer=Optimizer("adamw", 3e-3, warmup_steps=5, weight_decay=0.1, accumulation_steps=2, ema_momentum=0.9),
        run=Run(seed=1, folder=folder, checkpoint_steps=4, epoch_steps=10, resume=True),
        total_steps=STEPS,
    )
    steps = []
    counter = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    model, _ = fit.pretrain(recipe, [Kill(int(kill_at)), counter])
    Path(out).with_suffix(".steps").write_text(str(len(steps)))
    np.savez(out, *[np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)])


def run(*arguments):
    """Exit status of a training process."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def main():
    print("| killed after step | resumed from step | values compared | values that differ |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if run(folder / "data", folder / "whole", folder / "whole.npz", 0):
            raise SystemExit("The uninterrupted run failed.")
        whole = np.load(folder / "whole.npz")
        for step in sorted(np.random.default_rng(0).choice(np.arange(1, STEPS), KILLED, replace=False)):
            killed = folder / f"killed-{step}"
            if run(folder / "data", killed, folder / "never.npz", step) != -signal.SIGKILL:
                raise SystemExit("The run was not killed.")
            saved = max((int(file.name.split("-")[1].split(".")[0]) for file in killed.glob("step-*.index")), default=0)
            if run(folder / "data", killed, folder / f"{step}.npz", 0):
                raise SystemExit("The resumed run failed.")
            resumed = STEPS - int((folder / f"{step}.steps").read_text())
            if resumed != saved:
                raise SystemExit(f"The run continued from step {resumed}, not from its checkpoint of step {saved}.")
            found = np.load(folder / f"{step}.npz")
            compared = sum(whole[name].size for name in whole.files)
            different = sum(int((whole[name] != found[name]).sum()) for name in whole.files)
            print(f"| {step} | {resumed} | {compared:,} | {different} |", flush=True)


if __name__ == "__main__":
    train(*sys.argv[1:]) if len(sys.argv) > 1 else main()
