"""Random faults, each repeatable by its seed: what is lost, silently wrong, or ends in a traceback.

Command: python benchmarks/faults.py --faults 2000 --seed 0 [--kinds weights,images] [--seconds 3600]
Damages files (flipped bits, zeros, truncation, foreign bytes) and reads them back. A fault holds if the result is bit
for bit that without the fault, or a ValueError or OSError of one sentence. Formats without checksums (.safetensors,
.weights.h5) hold flipped numbers that nobody can notice: there the loaded weights must be those that another reader
finds in the damaged file.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import io
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.recipes import fit
from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run
from keras_vit.recipes.recipe.file import read_recipe, write_recipe
from keras_vit.recipes.runs.checkpoints import Checkpoints, TrainingState
from keras_vit.recipes.runs.folder import find_checkpoints
from keras_vit.recipes.runs.self_supervised import compile_self_supervised
from keras_vit.weights import save
from keras_vit_cli.errors import error_sentence

TOY = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}


RECIPE = MaskedPatch(
    architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
    data=Data(dataset="digits", image_size=8, batch_size=20, min_crop_area=0.5, flip=False),
    optimizer=Optimizer("adamw", 3e-3, warmup_steps=5, weight_decay=0.1, ema_momentum=0.9),
    run=Run(seed=1, checkpoint_steps=3, epoch_steps=10, resume=True),
    total_steps=16,
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


def kinds(folder: Path, wanted=("",)) -> dict:
    """Name -> (how often, function (empty folder, random)), for the names that contain one of `wanted`."""
    files = weights_files(folder / "weights")
    run = functools.cache(lambda: train(folder))  # only if a kind of fault uses it
    record_folder = functools.cache(lambda: record_files(folder / "records"))
    image_folder = functools.cache(lambda: image_files(folder / "images"))
    table = {f"weights {name}": (8, functools.partial(weights, path)) for name, path in files.items()}
    table["hostile JSON"] = (6, functools.partial(hostile_json, files[".safetensors"]))
    table |= {
        "recipe.json": (4, recipe_file),
        "TFRecord shards": (5, functools.partial(records, record_folder)),
        "images": (2, functools.partial(images, image_folder)),
        "checkpoint files": (10, functools.partial(checkpoint_files, run)),
    }
    return {name: kind for name, kind in table.items() if any(part in name for part in wanted)}


def randomized(seed=0):
    model = keras_vit.VisionTransformer(**TOY)
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(random.standard_normal(weight.shape))
    return model


def weights_files(folder) -> dict[str, Path]:
    folder.mkdir()
    model, paths = randomized(), {x: folder / f"model{x}" for x in (".npz", ".safetensors", ".keras", ".weights.h5")}
    for ending, path in paths.items():
        model.save_weights(path) if ending == ".weights.h5" else save(model, path)
    return paths


@functools.lru_cache
def whole_weights(path):
    return load(path).get_weights()


def load(path):
    options = {x: TOY[x] for x in TOY if x != "num_classes"} if path.name.endswith(".h5") else {"num_heads": 3}
    return keras_vit.load(path, **({} if path.suffix in (".keras", ".safetensors") else options))


def weights(path, place, random):
    """Damages a file of weights and loads it."""
    whole_weights(path)
    for file in path.parent.glob("*.json"):
        shutil.copy(file, place)
    (file := place / path.name).write_bytes(damage(path.read_bytes(), random))
    try:
        found = load(file).get_weights()
    except Exception as error:
        return check_error(error, (path.name,))
    if path.suffix in (".npz", ".keras"):
        return same(found, whole_weights(path))
    if not all(np.isfinite(value).all() for value in found):
        raise Lost("loaded numbers that are not finite")
    same(sorted_bytes(found), sorted_bytes(stored(file)))  # no checksums: what the damaged file says


def sorted_bytes(arrays):
    """All numbers in one order, whatever the layout of their arrays."""
    return [np.sort(np.concatenate([np.asarray(x, "float32").ravel() for x in arrays]).view("uint32"))]


def stored(path):
    """The arrays in a file, by code that shares nothing with keras_vit."""
    if path.suffix == ".safetensors":
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        entries = [entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"]
        return [
            np.frombuffer(data[start:][slice(*entry["data_offsets"])], {"F32": "<f4"}[entry["dtype"]])
            for entry in entries
        ]
    import h5py

    found = []
    with h5py.File(path) as file:
        file.visititems(lambda name, x: found.append(x[()]) if isinstance(x, h5py.Dataset) else None)
    return [x for x in found if x.dtype.kind == "f"]


def hostile_json(path, place, random):
    """Another value, of any type and size, in the JSON file beside the weights."""
    shutil.copy(path, place)
    name = random.choice(["config.json", "preprocessor_config.json"])
    for file in path.parent.glob("*.json"):
        shutil.copy(file, place)
    content = json.loads((place / name).read_text())
    values = [None, -1, 0, 10**9, 10**30, 1.5, "x" * 10, [], [1] * 4, {}, {"a": []}, True, float("nan")]
    content[str(random.choice(list(content)))] = values[random.integers(len(values))]
    text = json.dumps(content)
    if random.random() < 0.2:
        text = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    (place / name).write_text(text)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            found = load(place / path.name).get_weights()
        except Exception as error:
            return check_error(error, (path.name, name, "`", "Expected", "must"))
    same(found, whole_weights(path))


def recipe_file(place, random):
    write_recipe(RECIPE, file := place / "recipe.json")
    text = damage(file.read_bytes(), random)
    file.write_bytes(text)
    try:
        found = read_recipe(file)
    except Exception as error:
        return check_error(error, ("recipe.json",))
    write_recipe(found, place / "again.json")  # what was read is what the damaged file says
    if json.loads((place / "again.json").read_text()) != json.loads(text):
        raise Lost("reads another recipe than the file's")


def record_files(folder):
    folder.mkdir()
    (folder / "labels.txt").write_text("a\nb\n")
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), "uint8")
    with tf.io.TFRecordWriter(str(folder / "test-00000-of-00001")) as writer:
        for number, image in enumerate(pixels):
            content = tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_png(image).numpy()]))
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2]))
            features = tf.train.Features(feature={"image": content, "label": label})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return folder


def image_files(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), "uint8")
    for number, image in enumerate(pixels):
        encode = tf.io.encode_png if number % 2 else tf.io.encode_jpeg
        file = folder / "test" / "ab"[number % 2] / f"{number:02}.{'png' if number % 2 else 'jpg'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(image).numpy())
    return folder


def read_split(dataset):
    from keras_vit.recipes.data import evaluation_arrays, open_dataset

    data = Data(dataset=dataset, image_size=8, batch_size=5, max_corrupt=0.5)
    return evaluation_arrays(data, open_dataset(data), "test")


def records(source, place, random):
    """Damages a TFRecord file, whose records have checksums; a file may end after any complete record."""
    shutil.copytree(source(), place, dirs_exist_ok=True)
    file = place / "test-00000-of-00001"
    file.write_bytes(damage(file.read_bytes(), random))
    whole = read_whole(source(), "tfrecord")
    try:
        found = read_split(f"tfrecord:{place}")
    except Exception as error:
        if not error_sentence(error):
            raise Lost(f"{type(error).__name__}: {error}") from error
        return
    same([x[: len(found[0])] for x in whole], found, "images or labels")


def images(source, place, random):
    """Damages one image: the others stay what they were."""
    shutil.copytree(source(), place, dirs_exist_ok=True)
    file = random.choice(sorted(place.glob("test/*/*")))
    file.write_bytes(damage(file.read_bytes(), random))
    whole = read_whole(source(), "folder")
    with contextlib.redirect_stderr(io.StringIO()):
        found = read_split(f"folder:{place}")
    missing = [image.tobytes() for image in whole[0]]
    for image in found[0]:
        missing = [x for x in missing if x != image.tobytes()]
    if len(missing) > 1 or not 11 <= len(found[0]) <= 12:
        raise Lost(f"{len(missing)} of 12 images differ, {len(found[0])} were read")


@functools.lru_cache
def read_whole(folder, kind):
    return read_split(f"{kind}:{folder}")


def train(folder) -> Path:
    """The folder of a finished run of `RECIPE`, with its checkpoints."""
    run = folder / "run"
    data = dataclasses.replace(RECIPE.data, data_dir=str(folder / "data"))
    fit.pretrain(dataclasses.replace(RECIPE, data=data, run=dataclasses.replace(RECIPE.run, folder=str(run))))
    return run


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
    run = source()
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


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the first fault; the next ones count upwards")
    parser.add_argument("--faults", type=int, default=None, help="number of faults (default: 2000, or by --seconds)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time")
    parser.add_argument("--kinds", default="", help="only kinds whose names contain one of these, by commas")
    options = parser.parse_args(arguments)
    faults = options.faults if options.faults is not None else (2000 if options.seconds is None else 10**9)
    wanted = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        tables = run(kinds(Path(folder), wanted), Path(folder), options.seed, faults, options.seconds)
    return report(*tables)


def run(kinds, folder: Path, seed: int, faults: int, seconds: float | None = None):
    """Makes faults, each of a random kind: number of tries by kind, and (kind, seed, reason) of each failure."""
    if not kinds:
        raise SystemExit("No kind of fault has such a name. Without --kinds all are made, and listed at the end.")
    names, start = list(kinds), time.monotonic()
    weights = np.array([kinds[name][0] for name in names], "float64")
    tried: collections.Counter = collections.Counter()
    failed: list[tuple[str, int, str]] = []
    for number in range(seed, seed + faults):
        if seconds is not None and time.monotonic() - start > seconds:
            break
        random = np.random.default_rng(number)
        name = names[random.choice(len(names), p=weights / weights.sum())]
        tried[name] += 1
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                kinds[name][1](Path(place), random)
            except Lost as error:
                failed.append((name, number, str(error).partition("\n")[0]))
            except Exception as error:
                failed.append((name, number, f"the harness: {type(error).__name__}: {error}".partition("\n")[0]))
    return tried, failed


def report(tried, failed) -> int:
    """Prints the table and the failures; returns the exit status."""
    lost = collections.Counter(name for name, _, _ in failed)
    print("| kind | tried | held | failed |\n|---|---|---|---|")
    for name in sorted(tried):
        print(f"| {name} | {tried[name]} | {tried[name] - lost[name]} | {lost[name]} |")
    print(f"| all | {sum(tried.values())} | {sum(tried.values()) - len(failed)} | {len(failed)} |")
    for name, number, reason in failed:
        print(f"seed {number}, {name}: {reason}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
