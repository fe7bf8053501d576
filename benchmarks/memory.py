"""Memory of a process after each of several trainings, one after the other: it must not grow.

Requires keras_vit[tensorflow,recipes]
Command: python benchmarks/memory.py [--count 12] [--depth 4]; KERAS_BACKEND=jax python benchmarks/memory.py
Prints megabytes after each training of a B/2 of 7 million parameters per block: `fit` of the model, `fit` of a
functional model around it, and `run` of a recipe.
"""

import argparse
import ctypes
import gc
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_vit
from keras_vit.recipes import run
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised

IMAGES = np.random.default_rng(0).uniform(-1, 1, (8, 8, 8, 3)).astype("float32")
LABELS = np.arange(8)


def fit(depth, wrapped=False):
    options = {"depth": depth, "width": 768, "mlp_dim": 3072, "num_heads": 12}
    model = keras_vit.VisionTransformer(image_size=8, patch_size=2, num_classes=10, **options)
    if wrapped:
        inputs = keras.Input((8, 8, 3))
        model = keras.Model(inputs, model(keras.layers.RandomFlip()(inputs)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IMAGES, LABELS, verbose=0)


def train(depth, data_dir):
    data = Data("digits", data_dir=data_dir, image_size=8, batch_size=8, crop="none", flip=False, validation_split=None)
    settings = Run(strategy="one-device", steps_per_execution=1)
    optimizer = Optimizer("adam", 1e-4, warmup_steps=1)
    run(Supervised(Architecture("B/2", depth=depth), data=data, optimizer=optimizer, run=settings, total_steps=2))


def megabytes() -> int:
    """Resident memory, after what can be freed was freed."""
    for _ in range(2):
        gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12, help="trainings of each kind")
    parser.add_argument("--depth", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = {
            "fit": lambda: fit(arguments.depth),
            "fit, functional": lambda: fit(arguments.depth, wrapped=True),
            "run": lambda: train(arguments.depth, folder),
        }
        print(f"| {keras.backend.backend()} | megabytes after each training | growth of each after the second |")
        print("|---|---|---|")
        for name, job in jobs.items():
            sizes = []
            for _ in range(arguments.count):
                job()
                sizes.append(megabytes())
            growth = (sizes[-1] - sizes[1]) / (arguments.count - 2)
            print(f"| {name} | {', '.join(map(str, sizes))} | {growth:.1f} |", flush=True)


if __name__ == "__main__":
    main()
