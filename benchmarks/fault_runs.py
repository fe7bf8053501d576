"""Damage and its checks, and the faults of trainings for faults.py: killed runs, damaged files of a run's folder."""

import contextlib
import dataclasses
import functools
import io
import json
import multiprocessing
import os
import shutil
import time

import numpy as np
import tensorflow as tf

from keras_vit.recipes import fit
from keras_vit.recipes.checkpoints.checkpoints import Checkpoints, TrainingState
from keras_vit.recipes.checkpoints.run_folder import find_checkpoints
from keras_vit.recipes.checkpoints.run_identity import begin_run, read_identity
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.distributed import Workers
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run
from keras_vit.recipes.self_supervised import compile_self_supervised

STEPS = 16
RECIPE = MaskedPatch(
    architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
    data=Data(dataset="digits", image_size=8, batch_size=20, min_crop_area=0.5, flip=False),
    optimizer=Optimizer("adamw", 3e-3, warmup_steps=5, weight_decay=0.1, ema_momentum=0.9),
    run=Run(seed=1, checkpoint_steps=3, epoch_steps=10, resume=True),
    total_steps=STEPS,
)


class Lost(AssertionError):
    """The fault changed a result, or ended in an error that no user understands."""


def damage(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes with one random fault: flipped bits, zeros, a shorter or a longer file, or other bytes."""
    data = bytearray(data)
    kind = random.choice(["flip", "flips", "zeros", "truncate", "noise", "grow", "empty", "head"])
    place = int(random.integers(max(len(data), 1)))
    count = int(random.integers(1, 4096))
    if kind == "flip" and data:
        data[place] ^= 1 << int(random.integers(8))
    elif kind == "head" and data:  # where formats declare names, shapes and sizes
        data[place % min(len(data), 2048)] ^= 1 << int(random.integers(8))
    elif kind == "flips":
        for place in random.integers(max(len(data), 1), size=16 if data else 0):
            data[place] ^= 1 << int(random.integers(8))
    elif kind in ("zeros", "noise"):
        length = len(data[place : place + count])
        data[place : place + count] = bytes(length) if kind == "zeros" else random.bytes(length)
    elif kind == "grow":
        data += random.bytes(count)
    else:
        data = data[:place] if kind == "truncate" else bytearray()
    return bytes(data)


def check_error(error: BaseException, names: tuple[str, ...]):
    """Raises Lost unless an error is one of the documented classes and its first line says what is wrong with what."""
    if not isinstance(error, ValueError | OSError):
        raise Lost(f"{type(error).__name__}: {str(error)[:300]}") from error
    text = str(error)
    if isinstance(error, UnicodeError) or "Traceback" in text or not any(name in text for name in names):
        raise Lost(f"{type(error).__name__} does not name the file: {text[:300]}") from error


def same(found, expected, what="weights"):
    """Raises Lost unless two lists of arrays are equal bit for bit."""
    if len(found) != len(expected) or not all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(found, expected)
    ):
        raise Lost(f"silently different {what}")


def train(folder, data_dir, out, log):
    """Trains the toy in a process of its own, and writes all variables."""
    os.dup2(descriptor := os.open(log, os.O_CREAT | os.O_WRONLY), 1), os.dup2(descriptor, 2)
    data = dataclasses.replace(RECIPE.data, data_dir=data_dir)
    recipe = dataclasses.replace(RECIPE, data=data, run=dataclasses.replace(RECIPE.run, folder=folder))
    model, _ = fit.pretrain(recipe)
    np.savez(out, *[np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)])


def started(*arguments):
    """A process in which the imports are done already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fault_runs", "__main__"])
    process = context.Process(target=train, args=tuple(map(str, arguments)))
    process.start()
    return process


def trained(folder):
    """The uninterrupted run: its folder, variables, the folder of the data, and seconds."""
    run = folder / "whole"
    started(folder / "warm", folder / "data", folder / "whole.npz", folder / "log.txt").join()  # imports, data
    start = time.monotonic()
    process = started(run, folder / "data", folder / "whole.npz", folder / "log.txt")
    process.join()
    if process.exitcode:
        raise RuntimeError((folder / "log.txt").read_text()[-2000:])
    return run, list(np.load(folder / "whole.npz").values()), folder / "data", time.monotonic() - start


def training(source, number, place, random):
    """Kills a training at any time, up to three times, and lets it end."""
    _, whole, data_dir, seconds = source()
    for _ in range(random.integers(1, 4)):
        process = started(place / "run", data_dir, place / "out.npz", place / "log.txt")
        time.sleep(random.uniform(0, seconds))
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(process.pid, number)
        process.join()
        if process.exitcode not in (0, 75, -number):
            raise Lost(f"exit {process.exitcode}: {(place / 'log.txt').read_text()[-300:]!r}")
    process = started(place / "run", data_dir, place / "out.npz", place / "log.txt")
    process.join()
    if process.exitcode:
        raise Lost(f"no resume: {(place / 'log.txt').read_text()[-300:]!r}")
    same(list(np.load(place / "out.npz").values()), whole)


@functools.lru_cache
def empty_model():
    model = compile_self_supervised(RECIPE)
    model.optimizer.build(model.trainable_variables)
    return model


def state():
    return [x.numpy() for x in tf.nest.flatten(TrainingState(empty_model()).groups)]


@functools.lru_cache
def state_of(path):
    with contextlib.redirect_stdout(io.StringIO()):
        tf.train.Checkpoint(**TrainingState(empty_model()).groups).read(path).expect_partial()
    return state()


def checkpoint_files(source, place, random):
    """Damages one to three files of a run's checkpoints: the newest that is whole is restored, exactly."""
    run = source()[0]
    expected = {int(path.rpartition("-")[2]): state_of(path) for path in find_checkpoints(str(run))}
    for file in run.iterdir():
        if file.name.startswith(("step-", "checkpoint")):
            shutil.copy(file, place)
    files = sorted(place.iterdir())
    for file in random.choice(files, size=random.integers(1, 4), replace=False):
        file.write_bytes(damage(file.read_bytes(), random))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            step = Checkpoints(str(place)).restore(empty_model())
    except Exception as error:
        return check_error(error, (str(place),))
    if step not in expected:
        raise Lost(f"restored step {step}")
    same(state(), expected[step], f"state at step {step}")


def identity_file(source, place, random):
    """Damages run.json, or puts another value into it: a resume keeps the run's id, or names what differs."""
    run, _, data_dir, _ = source()
    for file in run.iterdir():
        if file.name.startswith(("step-", "run.json")):
            shutil.copy(file, place)
    data = dataclasses.replace(RECIPE.data, data_dir=str(data_dir))
    recipe = dataclasses.replace(RECIPE, data=data, run=dataclasses.replace(RECIPE.run, folder=str(place)))
    begun, file = read_identity(place), place / "run.json"
    if random.random() < 0.5:
        file.write_bytes(damage(file.read_bytes(), random))
    else:
        content = json.loads(file.read_text())
        values = [None, -1, 1.5, "x", [], [1], {}, {"train": "x"}, True]
        content[str(random.choice(list(content)))] = values[random.integers(len(values))]
        file.write_text(json.dumps(content))
    expected = read_identity(place) or begun  # else that of the newest checkpoint
    try:
        resumed = begin_run(recipe, open_dataset(data), Workers(tf.distribute.get_strategy()))
    except Exception as error:
        return check_error(error, (str(place),))
    if (resumed.id, resumed.class_names, resumed.images) != (expected.id, begun.class_names, begun.images):
        raise Lost("another identity than that of the run")
