"""Random faults, each repeatable by its seed: what is lost, silently wrong, or ends in a traceback.

Command: python benchmarks/faults.py --faults 2000 --seed 0 [--kinds weights,training] [--seconds 3600]
Damages files (flipped bits, zeros, truncation, foreign bytes) and reads them back, kills and terminates trainings and
resumes them, and fills a disk. A fault holds if the result is bit for bit that without the fault, or a ValueError or
OSError of one sentence. Formats without checksums (.safetensors, .weights.h5) hold flipped numbers that nobody can
notice: there the loaded weights must be those that another reader finds in the damaged file.
"""

import argparse
import collections
import contextlib
import functools
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf
from fault_runs import RECIPE, Lost, check_error, checkpoint_files, damage, identity_file, same, trained, training

import keras_vit
from keras_vit.export import write_saved_model, write_tflite
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe_file import read_recipe, write_recipe
from keras_vit.weights import save
from keras_vit_cli.errors import error_sentence

TOY = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}


def kinds(folder: Path, wanted=("",)) -> dict:
    """Name -> (how often, function (empty folder, random)), for the names that contain one of `wanted`."""
    files = weights_files(folder / "weights")
    run = functools.cache(lambda: trained(folder))  # made only if a kind of fault uses it
    record_folder = functools.cache(lambda: record_files(folder / "records"))
    image_folder = functools.cache(lambda: image_files(folder / "images"))
    table = {f"weights {name}": (8, functools.partial(weights, path)) for name, path in files.items()}
    table["hostile JSON"] = (6, functools.partial(hostile_json, files[".safetensors"]))
    table |= {
        "recipe.json": (4, recipe_file),
        "run.json": (4, functools.partial(identity_file, run)),
        "TFRecord shards": (5, functools.partial(records, record_folder)),
        "images": (2, functools.partial(images, image_folder)),
        "full disk": (3, full_disk),
        "export on a full disk": (0.5, export_on_a_full_disk),
        "checkpoint files": (10, functools.partial(checkpoint_files, run)),
        "training, SIGKILL": (0.3, functools.partial(training, run, signal.SIGKILL)),
        "training, SIGTERM": (0.3, functools.partial(training, run, signal.SIGTERM)),
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


def full_disk(place, random):
    """Files may not grow beyond a random size, as on a full disk: what was there before stays, nothing is left."""
    ending, limit = random.choice([".npz", ".safetensors", ".keras", ".json"]), int(random.integers(0, 12_000))
    out = place / "out"
    out.mkdir()
    write = (
        functools.partial(write_recipe, RECIPE) if ending == ".json" else functools.partial(overwrite, randomized(1))
    )
    write(out / f"a{ending}")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    limited(limit, lambda: write(out / f"a{ending}"))
    names = {file.name: file.read_bytes() for file in out.iterdir()}
    if names.keys() != before.keys() or (ending != ".keras" and names != before):
        raise Lost(f"left {sorted(names)}")
    if ending == ".keras":
        same(load(out / "a.keras").get_weights(), randomized(1).get_weights())


def overwrite(model, path):
    save(model, path, overwrite=True)


def limited(max_bytes, write) -> bool:
    """Whether `write()` succeeds while files of this process may not grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        write()
        return True
    except Exception as error:
        if not error_sentence(error) or isinstance(error, ValueError):
            raise Lost(f"{type(error).__name__} on a full disk: {error}") from error
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def export_on_a_full_disk(place, random):
    """An export is whole, or nothing is left of it."""
    out, model = place / "out", randomized(1)
    out.mkdir()
    if random.random() < 0.5:
        done = limited(int(random.integers(0, 60_000)), lambda: write_saved_model(model, out / "vit"))
    else:
        done = limited(int(random.integers(0, 60_000)), lambda: write_tflite(model, out, ("float32",)))
    if not done and list(out.iterdir()):
        raise Lost(f"left {sorted(file.name for file in out.iterdir())}")
    if done and not any(file.stat().st_size for file in out.iterdir()):
        raise Lost("an empty export")


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
