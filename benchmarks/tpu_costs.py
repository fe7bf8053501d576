"""The paper's figure 12 without a TPU: largest batch size and speed of ViT and BiT on a TPUv3 core, by image size.

Requires keras_vit[tensorflow,recipes,preflight]. A cell takes between half a minute and ten minutes; results are
stored, so an interrupted run is resumed.
Command: python benchmarks/tpu_costs.py            all cells, some hours on two cores
         python benchmarks/tpu_costs.py --models B/16 --sizes 224
Steps are compiled by the TPU's own compiler at a small batch, at four times that, and then where linear extrapolation
reaches a core's memory, until a batch fits that leaves less than a tenth of the memory free. "< 8": 8 images do not
fit. Images per second are the upper bound by compute and memory bandwidth at that batch size: real steps take longer.
Mixed bfloat16, 1,000 classes; training uses AdamW.
"""

import argparse
import json
import re
import subprocess
import sys

VITS = ("B/32", "B/16", "L/32", "L/16", "H/14")
BITS = ("R50x1", "R50x2", "R152x4")
SIZES = (64, 128, 224, 384, 512)
KINDS = ("training", "inference")
TOPOLOGY = "v3:1"
TARGET = 0.94  # fraction of a core's memory; the compiler reserves some
MAX_COMPILATIONS = 7


def build(name, size, kind):
    import keras

    import keras_vit
    from keras_vit.recipes.recipe import Optimizer
    from keras_vit.recipes.training.optimizers import build_optimizer
    from keras_vit.variants import BIT_SIZES, parse_variant

    common = {"num_classes": 1000, "dtype": "mixed_bfloat16"}
    if name in BITS:
        stages, width_factor = BIT_SIZES[name]
        model = keras_vit.BiT(stages=stages, width_factor=width_factor, image_size=size, **common)
    else:
        arguments = parse_variant(name)
        patch = arguments["patch_size"]
        model = keras_vit.VisionTransformer(**arguments, image_size=max(1, round(size / patch)) * patch, **common)
    if kind == "training":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(build_optimizer(Optimizer(name="adamw", weight_decay=0.1), 1000), loss)
    return model


def measure(name, size, kind):
    """Prints the largest batch size and the bound on images per second as JSON. Runs in a separate process."""
    from keras_vit.recipes.preflight import preflight

    model = build(name, size, kind)
    small = max(8, round(2 * (224 / size) ** 2) * 8)
    required, best = {}, None  # bytes by batch size; the largest step that fits
    batch = small
    for _ in range(MAX_COMPILATIONS):
        (step,) = preflight(model, TOPOLOGY, batch, kinds=(kind,)).steps
        required[batch] = step.required_memory if step.memory else _required(step)
        if step.fits and (best is None or batch > best.batch_size):
            best = step
        batch = _next(required, best, small, step.memory_limit)
        if batch in required or batch < 8:
            break
    print(json.dumps({"batch": best.batch_size, "rate": best.batch_size / best.min_seconds} if best else {}))


def _required(step):
    """Bytes required by a step that does not fit, from the compiler's message."""
    found = re.search(r"\(([\d.]+)([GM])\) exceeds available HBM", step.problems[0])
    if not found:
        raise RuntimeError(step.problems[0])
    return float(found[1]) * 2 ** {"G": 30, "M": 20}[found[2]]


def _next(required, best, small, limit):
    """The next batch size to compile; one of `required` ends the search."""
    if len(required) == 1:
        return 4 * small if best else small // 16 * 8
    if best and required[best.batch_size] > 0.9 * limit:
        return best.batch_size
    under = [batch for batch in sorted(required) if best and batch <= best.batch_size]
    over = [batch for batch in sorted(required) if batch not in under]
    a, b = (under[-1], over[0]) if under and over else under[-2:] or over[:2]
    slope = (required[b] - required[a]) / (b - a)
    return int(a + (TARGET * limit - required[a]) / slope) // 8 * 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=[*VITS, *BITS], choices=[*VITS, *BITS])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, size, kind = arguments.one
        return measure(name, int(size), kind)
    for kind in KINDS:
        print(f"\n{kind}: largest batch per core; upper bound on images/s per core\n")
        print("| model | " + " | ".join(f"{size} px" for size in arguments.sizes) + " |")
        print("|---" * (1 + len(arguments.sizes)) + "|")
        for name in arguments.models:
            print(f"| {name} |", end="", flush=True)
            for size in arguments.sizes:
                print(f" {cell(name, size, kind)} |", end="", flush=True)
            print()


def cell(name, size, kind):
    command = [sys.executable, __file__, "--one", name, str(size), kind]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}, {size} px, {kind}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return f"{found['batch']:,}; {found['rate']:,.0f}" if found else "< 8"


if __name__ == "__main__":
    main()
