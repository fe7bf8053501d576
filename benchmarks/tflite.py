"""Files of a trained ViT for phones, by this project and by others: speed, size, accuracy and seconds of conversion.

Requires vit-for-keras[tensorflow,recipes,export]; downloads the peers (`tflite_peers.PEERS`, about 12 GB, most of it
PyTorch's) into environments of their own in ENVIRONMENTS, once.
Command: python benchmarks/tflite.py deit_tiny_patch16_224.safetensors PHOTOS ENVIRONMENTS
         python benchmarks/tflite.py ... --peers executorch keras-hub --num-runs 200
The weights are timm's, named as there. PHOTOS/train/<class>/ calibrates, PHOTOS/test/<class>/ is judged; classes are
WordNet ids of ImageNet. Points lost are top-1 of Keras in float32 minus that of the file. Seconds are of one format at
a time, without imports and reading the weights, in parentheses of CPU time. Files are timed in turns of ten calls, each
in a process of its own: the table has the smallest time of each. ExecuTorch chooses its threads itself.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tflite_peers import PEERS

import keras_vit
from keras_vit.class_names import imagenet_class_names
from keras_vit.export import write_tflite
from keras_vit.export.benchmark import WORKER, time_in_turns
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.recipe import Data
from keras_vit.weights import save

FORMATS = ("float32", "dynamic-int8", "mixed-int8", "int8", "int4-weights")
SCRIPT = Path(__file__).with_name("tflite_peers.py")


def python_of(peer, environments) -> str:
    """The interpreter of a peer's environment, which is created if it is missing."""
    python = environments / peer / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environments / peer)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS[peer]], check=True)
    return str(python)


def read(photos, split, preprocessing):
    """Images of a split, (n, H, W, 3) in [0, 255], and the classes of ImageNet, (n,)."""
    dataset = open_dataset(Data(f"folder:{photos}"))
    images, labels = [], []
    for batch, numbers in decoded_images(dataset, split, 64, 0.01, np.arange(dataset.splits[split])):
        images.append(np.asarray(preprocessing.pixels(list(batch))))
        labels += [dataset.class_names[number] for number in numbers]
    classes = [identifier for identifier, _ in imagenet_class_names()]
    return np.concatenate(images), np.array([classes.index(name) for name in labels])


def own_files(model, calibration, folder):
    """Yields the path of each file of this project, and the seconds and CPU seconds of its conversion."""
    for kind in FORMATS:
        seconds, cpu = time.perf_counter(), time.process_time()
        file = write_tflite(model, folder / "files", [kind], calibration)[kind]
        yield file.rename(folder / f"keras_vit-{kind}.tflite"), time.perf_counter() - seconds, time.process_time() - cpu


def peer_files(peer, python, folder, name):
    """As `own_files`."""
    command = [python, str(SCRIPT), peer, str(folder), name]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in output.splitlines():
        if line.startswith("{"):  # libraries print other lines
            reply = json.loads(line)
            yield Path(reply["path"]), reply["seconds"], reply["cpu_seconds"]


def outputs(path, python, folder, pixels):
    """Logits or probabilities (n, C) of a file for the judged images."""
    if path.suffix == ".pte":
        subprocess.run([python, str(SCRIPT), "run", str(path), str(folder)], stdout=subprocess.DEVNULL, check=True)
        return np.load(folder / "outputs.npy")
    if path.name.startswith("keras_vit"):
        return run_tflite(path, pixels)[0]
    interpreter = Interpreter(str(path), num_threads=2)
    interpreter.allocate_tensors()
    (entry,), (end,) = interpreter.get_input_details(), interpreter.get_output_details()
    images, results = np.load(folder / "test.npy"), []
    if entry["dtype"] == np.int8:
        scale, zero = entry["quantization"]
        images = np.clip(np.round(images / scale) + zero, -128, 127).astype("int8")
    for image in images.transpose(0, 3, 1, 2) if entry["shape"][1] == 3 else images:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        results.append(interpreter.get_tensor(end["index"])[0])
    return np.stack(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weights", "photos", "environments"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--num-runs", type=int, default=60)
    options = parser.parse_args()
    pythons = {peer: python_of(peer, options.environments) for peer in options.peers}
    model, rows = keras_vit.load(options.weights, preprocessing="imagenet"), []
    calibration, _ = read(options.photos, "train", model.preprocessing)
    pixels, labels = read(options.photos, "test", model.preprocessing)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(options.weights, folder / "timm.safetensors")
        save(model, folder / "transformers/")
        for name, images in {"calibration": calibration, "test": pixels}.items():
            scaled = (images / 255 - model.preprocessing.mean) / model.preprocessing.std
            np.save(folder / f"{name}.npy", scaled.astype("float32"))
        expected = model.predict(np.load(folder / "test.npy"), verbose=0).argmax(-1)
        files = [*own_files(model, calibration, folder)]
        for peer, python in pythons.items():
            files += peer_files(peer, python, folder, options.weights.stem)
        commands = []
        for path, seconds, cpu in files:
            python = pythons.get("executorch")
            found = outputs(path, python, folder, pixels).argmax(-1)
            points = 100 * ((expected == labels).mean() - (found == labels).mean())
            accuracy = f"{points:+.1f} | {(found == expected).mean():.1%} | {seconds:.0f} ({cpu:.0f})"
            rows.append(f"| {path.stem} | {path.stat().st_size / 1e6:.1f} | {accuracy} |")
            own = [sys.executable, "-P", str(WORKER), str(path), "2", "5"]
            foreign = [python, str(SCRIPT), "time", str(path), str(pixels.shape[1])]
            commands.append((path.stem, foreign if path.suffix == ".pte" else own))
        timings = time_in_turns(commands, options.num_runs)
    print(
        f"\n{len(pixels)} photographs, top-1 of Keras {(expected == labels).mean():.1%}; {len(calibration)} calibrate\n"
    )
    print("| | MB | points lost | agreement | seconds (CPU) | ms |\n|---|---|---|---|---|---|")
    for row, (milliseconds, _) in zip(rows, timings):
        print(f"{row} {min(milliseconds):.1f} |")


if __name__ == "__main__":
    main()
