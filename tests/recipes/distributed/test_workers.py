"""Two worker processes on this machine, with gradient accumulation, equal one process."""

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import script

import keras_vit
from keras_vit.recipes.checkpoints.checkpoints import TERMINATED, Checkpoints
from keras_vit.recipes.data import evaluation_batches, open_dataset, training_batches
from keras_vit.recipes.distributed.hosts import shard_batches
from keras_vit.recipes.distributed.strategy import choose_strategy
from keras_vit.recipes.distributed.workers import Workers, is_chief
from keras_vit.recipes.recipe import Data, Optimizer
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.optimizers import build_optimizer

STEPS = 10


def train(strategy, data_dir, folder=None, stop_at=None):
    """Trains a toy model on the digits for ten steps; this process gets SIGTERM at step `stop_at`.

    Returns the weights, and the loss of 37 test images.
    """
    data = Data(data_dir=data_dir, image_size=8, batch_size=16, flip=False, crop="none")
    dataset = open_dataset(data)  # prepares the data with random numbers, the first time
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras_vit.VisionTransformer(
            image_size=8, patch_size=4, depth=1, width=12, mlp_dim=24, num_heads=3, num_classes=10, seed=1
        )
        optimizer = Optimizer("adamw", 1e-2, "linear", warmup_steps=2, weight_decay=0.1, global_clipnorm=0.05)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(build_optimizer(optimizer, STEPS), loss, jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    if strategy.num_replicas_in_sync == 2:
        accumulate_gradients(model, 2)
    callbacks, done = [], 0
    if folder:
        checkpoints = Checkpoints(folder, every_steps=4)
        done = checkpoints.restore(model)
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=stopper(model, stop_at)), checkpoints]
    training = shard_batches(strategy, lambda host: training_batches(data, dataset, 3, done, host), 16)
    model.fit(training, steps_per_epoch=STEPS - done, shuffle=False, verbose=0, callbacks=callbacks)
    loss = model.evaluate(
        shard_batches(strategy, partial(evaluation_batches, data, dataset, "test[:37]"), 16), verbose=0
    )
    return [*map(np.asarray, model.get_weights()), np.asarray(loss)]


def stopper(model, step):
    def stop(batch, logs):
        if int(model.optimizer.iterations.numpy()) == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def main(data_dir, folder, out, stop_at):
    """One worker, whose index is in TF_CONFIG."""
    strategy = choose_strategy("auto")
    assert choose_strategy("multi-worker") is strategy and strategy.num_replicas_in_sync == 2
    np.savez(out, *train(strategy, data_dir, folder, int(stop_at)))


def start_workers(tmp_path, *arguments):
    """Starts two workers, each with its own arguments; returns their output and exit status."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0))
        other.bind(("localhost", 0))
        addresses = [f"localhost:{one.getsockname()[1]}", f"localhost:{other.getsockname()[1]}"]
    workers = []
    for index, argument in enumerate(arguments):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        command = script(__file__, *argument)
        workers.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    return [(worker.communicate(timeout=300)[0], worker.returncode) for worker in workers]


@pytest.mark.slow
def test_two_workers_stopped_and_resumed_equal_one_process(tmp_path, data_dir):
    expected = train(tf.distribute.get_strategy(), data_dir)
    folder, files = tmp_path / "run", [tmp_path / "0.npz", tmp_path / "1.npz"]
    # Only the second worker gets SIGTERM, at step 6.
    outcomes = start_workers(tmp_path, (data_dir, folder, files[0], 99), (data_dir, folder, files[1], 6))
    for output, status in outcomes:
        assert status == TERMINATED and "Saved step 6 in" in output, output
    assert {file.name for file in folder.glob("*.index")} == {"step-4.index", "step-6.index"}
    outcomes = start_workers(tmp_path, (data_dir, folder, files[0], 99), (data_dir, folder, files[1], 99))
    for output, status in outcomes:
        assert status == 0, output
    assert (folder / "step-10.index").exists()
    first, second = ([np.load(file)[name] for name in np.load(file).files] for file in files)
    assert first and len(first) == len(second) == len(expected)
    for one, other, reference in zip(first, second, expected):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, reference, atol=1e-5)


def resolver(jobs, task_type, task_id):
    spec = tf.train.ClusterSpec({job: ["localhost:1", "localhost:2"] for job in jobs})
    return SimpleNamespace(cluster_spec=lambda: spec, task_type=task_type, task_id=task_id)


@pytest.mark.parametrize(
    "jobs,task_type,task_id,chief",
    [
        ([], None, None, True),
        (["worker"], "worker", 0, True),
        (["worker"], "worker", 1, False),
        (["chief", "worker"], "worker", 0, False),
        (["chief", "worker"], "chief", 0, True),
    ],
)
def test_is_chief(jobs, task_type, task_id, chief):
    assert is_chief(resolver(jobs, task_type, task_id)) is chief


def test_single_process_is_the_chief():
    workers = Workers(tf.distribute.get_strategy())
    assert workers.chief and workers.any(True) and not workers.any(False)
    workers.check_equal(3, "folder")


def test_workers_with_different_folders_raise(monkeypatch):
    workers = Workers(tf.distribute.get_strategy())
    monkeypatch.setattr(workers, "_gather", lambda value: [value, 0])
    with pytest.raises(ValueError, match=r"different steps in /local: \[0, 8\].*shared disk or a bucket"):
        workers.check_equal(8, "/local")


if __name__ == "__main__":
    main(*sys.argv[1:])
