"""The paper's figure 12 from a laptop: largest batches and speed of ViT and BiT on a TPUv3 core, by picture size.

Needs keras_vit[tensorflow,recipes,preflight]. A cell takes half a minute to ten minutes; answers are kept, so a run
that was broken off goes on where it was.
Command: python benchmarks/tpu_costs.py            all of it, some hours on two cores
         python benchmarks/tpu_costs.py --models B/16 --sizes 224
Steps are compiled by the TPU's own compiler at two batches; memory is a line in the batch, and the largest multiple of
8 under a core's memory is given ("< 8" where 8 pictures do not fit). Images a second are the bound of arithmetic and
traffic at the larger of both batches: real steps take longer. Mixed bfloat16, 1,000 classes; training is with AdamW.
"""

import argparse
import json
import subprocess
import sys

VITS = ("B/32", "B/16", "L/32", "L/16", "H/14")
BITS = ("R50x1", "R50x2", "R152x4")
SIZES = (64, 128, 224, 384, 512)
KINDS = ("training", "inference")
TOPOLOGY = "v3:1"


def build(name, size, kind):
    import keras

    import keras_vit
    from keras_vit.recipes.optimizers import build_optimizer
    from keras_vit.recipes.recipe import Optimizer
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
    from keras_vit.recipes.tpu import preflight

    model, steps = build(name, size, kind), {}
    small = max(8, round(2 * (224 / size) ** 2) * 8)
    for batch in (small, 4 * small, small // 2):
        (step,) = preflight(model, TOPOLOGY, batch, kinds=(kind,)).steps
        if step.memory:
            steps[batch] = step
        elif not any("RESOURCE_EXHAUSTED" in problem for problem in step.problems):
            raise RuntimeError(step.problems[0])
        if len(steps) == 2 or (batch == small and not steps):
            break
    print(json.dumps(line(steps) if steps else {"small": small}))


def line(steps):
    (small, less), (big, more) = sorted(steps.items())
    slope = (more.needed - less.needed) / (big - small)
    largest = big + (more.limit - more.needed) / slope
    return {"batch": int(largest // 8 * 8), "rate": big / more.floor}


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
    return f"{found['batch']:,}; {found['rate']:,.0f}" if "batch" in found else f"< {found['small']}"


if __name__ == "__main__":
    main()
