"""Killed and resumed processes, and two workers, end with the weights of one uninterrupted process."""

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from checkpointed_training import at, everything, steps
from processes import script

from keras_vit.recipes import fit
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run, Supervised
from keras_vit.recipes.runs.checkpoints import TERMINATED

pytestmark = pytest.mark.extended
NEVER = 10_000


def train(kind, data_dir, folder, stop_at=NEVER):
    """Trains a tiny model, from the last checkpoint if there is one; sends its process a signal after `stop_at` steps.

    Returns all variables; of a classifier also its metrics of 37 test images.
    """
    data = Data("digits", data_dir=data_dir, image_size=8, batch_size=40, validation_split=None, flip=False)
    run = Run(seed=1, folder=str(folder), checkpoint_steps=4, epoch_steps=10, resume=True)
    sizes = {"depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
    if kind == "killed":
        optimizer = Optimizer("adamw", 3e-3, warmup_steps=5, weight_decay=0.1, accumulation_steps=2, ema_momentum=0.9)
        recipe = MaskedPatch(Architecture("Ti/2", **sizes, dropout=0.1), data, optimizer, run, total_steps=30)
    else:
        parts = 2 if kind == "worker" else 1
        optimizer = Optimizer(
            "adamw", 1e-2, "linear", warmup_steps=2, weight_decay=0.1, global_clipnorm=0.05, accumulation_steps=parts
        )
        architecture = Architecture("Ti/4", **sizes)
        recipe = Supervised(architecture, data=data, optimizer=optimizer, run=run, total_steps=10)
    number = signal.SIGKILL if kind == "killed" else signal.SIGTERM
    stop = at(stop_at, lambda: os.kill(os.getpid(), number), "on_train_batch_end")
    if kind == "killed":
        return everything(fit.pretrain(recipe, [stop])[0])
    model, _ = fit.train(recipe, callbacks=[stop])
    metrics = fit.evaluate(model, data, "test[:37]")
    assert metrics["images"] == 37
    return [*model.get_weights(), np.array([metrics["loss"], metrics["top1"]])]


def main(kind, data_dir, folder, out, stop_at):
    np.savez(out, *train(kind, data_dir, folder, int(stop_at)))


def start(*arguments, **more):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", **more}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(script(__file__, *arguments), env=environment, **options)


def finish(process):
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def load(file):
    with np.load(file) as arrays:
        return [arrays[name] for name in arrays.files]


def test_killed_and_resumed_run_gives_identical_weights(tmp_path, data_dir):
    open_dataset(Data("digits", data_dir=data_dir))  # prepares the data once, before two processes would
    step, folder, file = int(np.random.default_rng(5).integers(5, 30)), tmp_path / "killed", tmp_path / "resumed.npz"
    # All in processes of their own, which optimize their graphs: this one does not, so its last bits may differ.
    processes = [
        start("killed", data_dir, folder, file, step),
        start("killed", data_dir, tmp_path / "whole", tmp_path / "whole.npz", NEVER),
    ]
    (status, output), (whole_status, whole_output) = map(finish, processes)
    assert status == -signal.SIGKILL and not file.exists(), output
    assert whole_status == 0, whole_output
    expected = load(tmp_path / "whole.npz")
    assert steps(folder)[0] == step // 4 * 4
    status, output = finish(start("killed", data_dir, folder, file, NEVER))
    assert status == 0, output
    resumed = load(file)
    assert len(resumed) == len(expected) > 50
    for value, reference in zip(resumed, expected):
        np.testing.assert_array_equal(value, reference)


def without_key_biases(weights):
    """Biases of keys change no attention: without rounding their gradients are 0, and Adam enlarges the rounding."""
    return np.delete(weights, slice(12, 24)) if weights.shape == (36,) else weights  # queries, keys, values


def test_two_workers_stopped_and_resumed_equal_one_process(tmp_path, data_dir):
    expected = train("alone", data_dir, tmp_path / "alone")
    folder, files = tmp_path / "run", [tmp_path / "0.npz", tmp_path / "1.npz"]

    def train_with_two_workers(*stop_at):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("localhost", 0))
            other.bind(("localhost", 0))
            cluster = {"worker": [f"localhost:{free.getsockname()[1]}" for free in (one, other)]}
        configs = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
        arguments = zip(files, stop_at, configs)
        workers = [
            start("worker", data_dir, folder, *rest, TF_CONFIG=json.dumps(config)) for *rest, config in arguments
        ]
        return [finish(worker) for worker in workers]

    for status, output in train_with_two_workers(NEVER, 6):  # only the second gets SIGTERM
        assert status == TERMINATED and "Saved step 6 in" in output, output
    assert steps(folder) == [6, 4]
    for status, output in train_with_two_workers(NEVER, NEVER):
        assert status == 0, output
    assert steps(folder)[0] == 10
    for one, other, reference in zip(*map(load, files), expected, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(without_key_biases(one), without_key_biases(reference), atol=1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:])
