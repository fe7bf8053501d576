"""A run that is killed (SIGKILL) and resumed in another process ends with the weights of an uninterrupted one."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from processes import script

pytestmark = pytest.mark.slow

STEPS = 30


def main(data_dir, folder, out, kill_at):
    """Trains a toy model, from the last checkpoint if there is one; kills its process after step `kill_at`."""
    import keras

    from keras_vit.recipes import fit
    from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run

    recipe = MaskedPatch(
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        data=Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=40, min_crop_area=0.5, flip=False),
        optimizer=Optimizer("adamw", 3e-3, warmup_steps=5, weight_decay=0.1, accumulation_steps=2, ema_momentum=0.9),
        run=Run(seed=1, folder=folder, checkpoint_steps=4, epoch_steps=10, resume=True),
        total_steps=STEPS,
    )

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)

    model, _ = fit.pretrain(recipe, [Kill()])
    np.savez(out, *[np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)])


def start(*arguments):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = script(__file__, *arguments)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def test_killed_and_resumed_run_gives_identical_weights(tmp_path, data_dir):
    from keras_vit.recipes.data import open_dataset
    from keras_vit.recipes.recipe import Data

    open_dataset(Data(data_dir=data_dir))  # prepares the data once, before two processes would
    step = int(np.random.default_rng(5).integers(5, STEPS))
    folder = tmp_path / "killed"
    killed = start(data_dir, folder, tmp_path / "never.npz", step)
    main(data_dir, str(tmp_path / "whole"), tmp_path / "whole.npz", 0)
    status, output = finish(killed)
    assert status == -signal.SIGKILL, output
    saved = [int(file.name.split("-")[1].split(".")[0]) for file in folder.glob("step-*.index")]
    assert max(saved) == step // 4 * 4 and not (tmp_path / "never.npz").exists()
    status, output = finish(start(data_dir, folder, tmp_path / "resumed.npz", 0))
    assert status == 0, output
    expected, found = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "resumed.npz")
    assert len(expected.files) == len(found.files) > 50
    for name in expected.files:
        np.testing.assert_array_equal(found[name], expected[name])


if __name__ == "__main__":
    main(*sys.argv[1:])
