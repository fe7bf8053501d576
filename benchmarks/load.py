"""Time and memory of loading a published .npz, and the time of the import.

Command: python benchmarks/load.py
Random float32 weights of the published sizes in a temporary file; each measurement in a separate process. Memory is the
peak resident size while loading minus that of building the model, as a fraction of the size of the weights.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write(variant, file):
    import keras_vit
    from keras_vit.weights import save

    save(keras_vit.ViT(variant), file)


def load(variant, file):
    import keras_vit

    keras_vit.ViT("Ti/16", image_size=32)  # initialize TensorFlow first
    start = time.perf_counter()
    model = keras_vit.ViT(variant, str(file))
    seconds = time.perf_counter() - start
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, model.count_params() * 4)


def build(variant):
    import keras_vit

    keras_vit.ViT("Ti/16", image_size=32)
    start = time.perf_counter()
    model = keras_vit.ViT(variant)
    seconds = time.perf_counter() - start
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, model.count_params() * 4)


def measured(*arguments):
    output = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True).stdout
    return [float(value) for value in output.split()[-3:]]


def import_seconds(statement):
    code = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main():
    print("| model | size, GB | building, s | loading, s | memory beyond the model / size |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for variant in ("B/16", "L/16"):
            file = str(Path(folder) / "weights.npz")
            subprocess.run([sys.executable, __file__, "write", variant, file], check=True, capture_output=True)
            seconds, memory, size = measured("load", variant, file)
            building, model_memory, _ = measured("build", variant)
            beyond = (memory - model_memory) / size
            print(f"| {variant} | {size / 1e9:.2f} | {building:.1f} | {seconds:.1f} | {beyond:.2f} |", flush=True)
            Path(file).unlink()
    statement = "import keras; s = time.perf_counter(); import keras_vit"
    rounds = [import_seconds(statement) for _ in range(7)]
    milliseconds = 1e3 * statistics.median(rounds)
    print(f"\n`import keras_vit` after `import keras`: {milliseconds:.0f} ms, median of {len(rounds)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("arguments", nargs="*")
    arguments = parser.parse_args().arguments
    {"write": write, "load": load, "build": build}[arguments[0]](*arguments[1:]) if arguments else main()
