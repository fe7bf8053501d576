"""Replicas, workers and gradient accumulation compared with one replica and the whole batch: largest weight difference.

Requires keras_vit[tensorflow,recipes]
Command: python benchmarks/replicas.py
A toy ViT, batch size 16, 20 steps on logical CPUs; gradients are clipped in every step, and the halves of a batch
differ in scale and labels. Then two processes under `MultiWorkerMirroredStrategy`, and the memory of accumulation.
Attention does not depend on the key biases (they add the same to every logit of a query), so their gradients are
rounding errors, which Adam normalizes and of which Lion takes the sign: they are listed separately.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.recipes.distributed import choose_strategy
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.optimizers import build_optimizer

STEPS, BATCH = 20, 16
CLIPPED = {"decay": "constant", "global_clipnorm": 0.05}
RECIPES = {
    "SGD, momentum 0.9": Optimizer("sgd", 0.1, **CLIPPED),
    "Adam": Optimizer("adam", 1e-3, **CLIPPED),
    "AdamW, decay 0.1": Optimizer("adamw", 1e-3, weight_decay=0.1, **CLIPPED),
    "AdamW, EMA, layer decay": Optimizer("adamw", 1e-3, weight_decay=0.1, ema_momentum=0.9, layer_decay=0.7, **CLIPPED),
    "Muon, decay 0.1": Optimizer("muon", 1e-3, weight_decay=0.1, **CLIPPED),
    "LAMB, decay 0.1": Optimizer("lamb", 1e-3, weight_decay=0.1, **CLIPPED),
    "Lion, decay 0.1": Optimizer("lion", 1e-4, weight_decay=0.1, **CLIPPED),
}
SPLITS = [(1, 4), (2, 1), (2, 2), (4, 1), (4, 2)]  # replicas, accumulation steps
PRECISIONS = ("float32", "float64")
MEMORY = ("S/16", 224, 32)  # variant, pixels, batch


def strategy_of(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    devices = [f"CPU:{i}" for i in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


def train(strategy, recipe, parts=1, dtype="float32", make_optimizer=build_optimizer):
    """The trained weights, with their moving averages if there are any, and the key biases."""
    keras.config.set_floatx(dtype)
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (BATCH * STEPS, 8, 8, 3)).astype(dtype)
    images[::2] *= 0.1
    labels = random.integers(0, 5, BATCH * STEPS)
    labels.reshape(STEPS, 2, BATCH // 2)[:, 0] = 0
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras_vit.VisionTransformer(
            image_size=8, patch_size=4, depth=1, width=12, mlp_dim=24, num_heads=3, num_classes=5, dtype=dtype
        )
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make_optimizer(recipe, 100, model), loss, jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, parts)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.with_options(options)
    model.fit(dataset, shuffle=False, verbose=0)
    ema = getattr(model.optimizer, "_model_variables_moving_average", [])
    keys, others = [], []
    for variable in (*model.weights, *ema):
        value = variable.numpy()
        if "qkv" in variable.path and value.ndim == 1:
            query, key, value = np.split(value, 3)
            keys.append(key)
            others.append(query)
        others.append(value)
    return others, keys


def largest_difference(one, other):
    """Largest difference of all weights but the key biases, and of the key biases."""
    return [max(np.abs(a - b).max() for a, b in zip(*pair, strict=True)) for pair in zip(one, other, strict=True)]


def equalities():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    columns = ("float32", "float32, key biases", "float64", "float64, key biases")
    print(f"| optimizer | replicas | accumulation steps | {' | '.join(columns)} |\n|---|---|---|---|---|---|---|")
    for name, recipe in RECIPES.items():
        whole = {dtype: train(strategy_of(1), recipe, 1, dtype) for dtype in PRECISIONS}
        for replicas, parts in SPLITS:
            found = [
                largest_difference(whole[dtype], train(strategy_of(replicas), recipe, parts, dtype))
                for dtype in PRECISIONS
            ]
            cells = " | ".join(f"{value:.1e}" for pair in found for value in pair)
            print(f"| {name} | {replicas} | {parts} | {cells} |", flush=True)
    sgd = RECIPES["SGD, momentum 0.9"]
    whole = train(strategy_of(1), sgd)
    unclipped = train(strategy_of(1), replace(sgd, global_clipnorm=None))
    print(f"| SGD without clipping, for comparison | 1 | 1 | {max(largest_difference(whole, unclipped)):.1e} | | | |")
    difference = max(largest_difference(whole, train(strategy_of(2), sgd, make_optimizer=keras_sgd)))
    print(f"| Keras's own SGD, which clips each replica, for comparison | 2 | 1 | {difference:.1e} | | | |")


def keras_sgd(recipe, *_):
    return keras.optimizers.SGD(recipe.learning_rate, momentum=0.9, global_clipnorm=recipe.global_clipnorm)


def worker(file, dtype):
    strategy = choose_strategy("multi-worker")
    others, keys = train(strategy, RECIPES["AdamW, EMA, layer decay"], 2, dtype)
    np.savez(file, *others, keys=np.stack(keys))


def workers():
    setting = "two processes, AdamW, EMA, layer decay, 2 accumulation steps"
    print(f"\n| {setting} | float32 | float32, key biases | float64, all |\n|---|---|---|---|")
    to_single, to_each_other = [], []
    for dtype in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/{index}.npz" for index in range(2)]
            addresses = free_addresses()
            started = []
            for index, file in enumerate(files):
                cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                started.append(run("worker", file, dtype, TF_CONFIG=json.dumps(cluster)))
            try:
                while None in (codes := [process.poll() for process in started]) and not any(codes):
                    time.sleep(1)
            finally:
                for process in started:  # a worker whose partner died would wait forever
                    process.kill()
            for process in started:
                finish(process)
            first, second = (read(np.load(file)) for file in files)
        whole = train(strategy_of(1), RECIPES["AdamW, EMA, layer decay"], 1, dtype)
        to_single.append(largest_difference(whole, first))
        to_each_other.append(largest_difference(first, second))
    for name, ((single, keys), double) in (("one process", to_single), ("each other", to_each_other)):
        print(f"| compared with {name} | {single:.1e} | {keys:.1e} | {max(double):.1e} |", flush=True)


def read(file):
    return [file[name] for name in file.files if name != "keys"], list(file["keys"])


def free_addresses():
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0))
        other.bind(("localhost", 0))
        return [f"localhost:{end.getsockname()[1]}" for end in (one, other)]


def memory_of(parts):
    variant, size, batch = MEMORY
    model = keras_vit.ViT(variant, image_size=size, num_classes=10)
    model.compile(
        build_optimizer(Optimizer("adamw", weight_decay=0.1), 10),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, int(parts))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(np.zeros((batch, size, size, 3), "float32"), np.zeros(batch), batch_size=batch, verbose=0)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)


def memory():
    variant, size, batch = MEMORY
    print(f"\n| accumulation steps of a batch of {batch}, ViT-{variant}, {size} px | memory of a step, GB |\n|---|---|")
    for parts in (1, 2, 4, 8):
        print(f"| {parts} | {float(finish(run('memory_of', parts)).split()[-1]):.2f} |", flush=True)


def run(task, *arguments, **variables):
    """Starts a function of this file in a separate process."""
    command = [sys.executable, __file__, "--task", task, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)


def finish(process):
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", help=argparse.SUPPRESS)
    if task := parser.parse_args().task:
        {"worker": worker, "memory_of": memory_of}[task[0]](*task[1:])
    else:
        equalities()
        workers()
        memory()
