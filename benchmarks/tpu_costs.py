"""The paper's figure 12 from a laptop: largest batches and speed of ViT and BiT on a TPUv3 core, by image size.

Needs keras_vit[tensorflow,recipes,preflight]. A cell takes half a minute to ten minutes; answers are kept, so a run
that was broken off goes on where it was.
Command: python benchmarks/tpu_costs.py            all of it, some hours on two cores
         python benchmarks/tpu_costs.py --models B/16 --sizes 224
Steps are compiled by the TPU's own compiler at a small batch, at four times that, and then where the line through what
was compiled meets a core's memory, until a batch fits that leaves less than a tenth of the memory free. "< 8" where 8
images do not fit. Images a second are the bound of arithmetic and traffic at that batch: real steps take longer.
Mixed bfloat16, 1,000 classes; training is with AdamW.
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
AIM = 0.94  # of a core's memory; the compiler keeps some for itself
MOST_COMPILATIONS = 7


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
    """Prints the largest batch and the bound of images a second as JSON; runs in a process of its own."""
    from keras_vit.recipes.preflight import preflight

    model = build(name, size, kind)
    small = max(8, round(2 * (224 / size) ** 2) * 8)
    needed, best = {}, None  # bytes of each batch that was compiled; the largest step that fits
    batch = small
    for _ in range(MOST_COMPILATIONS):
        (step,) = preflight(model, TOPOLOGY, batch, kinds=(kind,)).steps
        needed[batch] = step.needed if step.memory else _asked(step)
        if step.fits and (best is None or batch > best.batch):
            best = step
        batch = _next(needed, best, small, step.limit)
        if batch in needed or batch < 8:
            break
    print(json.dumps({"batch": best.batch, "rate": best.batch / best.floor} if best else {}))


def _asked(step):
    """Bytes that a step wanted that does not fit; the compiler says them."""
    found = re.search(r"\(([\d.]+)([GM])\) exceeds available HBM", step.problems[0])
    if not found:
        raise RuntimeError(step.problems[0])
    return float(found[1]) * 2 ** {"G": 30, "M": 20}[found[2]]


def _next(needed, best, small, limit):
    """The next batch to compile, one of `needed` if the search is over."""
    if len(needed) == 1:
        return 4 * small if best else small // 16 * 8
    if best and needed[best.batch] > 0.9 * limit:
        return best.batch
    under = [batch for batch in sorted(needed) if best and batch <= best.batch]
    over = [batch for batch in sorted(needed) if batch not in under]
    a, b = (under[-1], over[0]) if under and over else under[-2:] or over[:2]
    slope = (needed[b] - needed[a]) / (b - a)
    return int(a + (AIM * limit - needed[a]) / slope) // 8 * 8


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
        print(f"\n{kind}: largest batch a core, and at most images/s a core\n")
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
