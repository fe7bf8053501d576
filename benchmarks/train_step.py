"""Speed of a training step, or of inference, of a small ViT on this machine: compared with KerasHub and transformers.

Requires vit-for-keras[tensorflow] and: pip install keras-hub torch transformers
Command: python benchmarks/train_step.py --num-threads 1
         python benchmarks/train_step.py --shape cifar10
         python benchmarks/train_step.py --inference
         python benchmarks/train_step.py --patch-dropout 0.5 --clock cpu   # requires vit-for-keras[tensorflow] only
A step is forward pass, backward pass and AdamW. Shapes: S/16 at 224 pixels, and a plain ViT for CIFAR-10 (width 192,
depth 9) without QK normalization, which KerasHub does not have. Each model runs in a separate process; they take
turns, so that other load on the machine affects all of them. The upper bound is the speed of matrix products of the
MLP's sizes alone, measured in the same turns, with the operations of all tokens in all blocks; keras_vit computes fewer
in the last block, 7 % of twelve. With `--clock cpu`, images per second are computed from the process's CPU
time and the number of threads: more stable on a shared machine. With `--patch-dropout`, keras_vit is compared with
itself, without and with patch dropout at this rate.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Shape:
    """A model, and the images of a step."""

    batch: int
    size: int
    patch: int
    classes: int
    depth: int
    width: int
    heads: int
    mlp_dim: int

    @property
    def tokens(self):
        return (self.size // self.patch) ** 2 + 1

    @property
    def gflop_per_image(self):
        """Forward and twice as much backward; a multiplication and an addition count as two."""
        block = self.tokens * (4 * self.width**2 + 2 * self.width * self.mlp_dim) + 2 * self.tokens**2 * self.width
        patches = (self.tokens - 1) * 3 * self.patch**2 * self.width
        return 3 * 2 * (self.depth * block + patches + self.width * self.classes) / 1e9


SHAPES = {
    "s16": Shape(16, 224, 16, 1000, depth=12, width=384, heads=6, mlp_dim=1536),
    "cifar10": Shape(128, 32, 4, 10, depth=9, width=192, heads=6, mlp_dim=384),
}
PEERS = {"KerasHub": ("keras_hub",), "transformers": ("torch", "transformers")}
UPPER_BOUND = "matrix products"
PATCH_DROPOUT = "keras_vit, patch dropout"
LIBRARIES = (UPPER_BOUND, "KerasHub", "keras_vit", "transformers")


def keras_step(build, shape, precision, num_threads, inference):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras

    keras.utils.set_random_seed(0)
    model = build("mixed_bfloat16" if precision == "bfloat16" else "float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    batch = (
        tf.random.uniform((shape.batch, shape.size, shape.size, 3), -1, 1),
        tf.random.uniform((shape.batch,), 0, shape.classes, tf.int32),
    )
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    if inference:
        model.make_predict_function()
        return lambda: float(model.predict_function([next(batches)])[0, 0])
    model.make_train_function()
    return lambda: float(model.train_function(batches)["loss"])


def our_model(shape, dtype, patch_dropout=0.0):
    import keras_vit

    sizes = {"depth": shape.depth, "width": shape.width, "mlp_dim": shape.mlp_dim, "num_heads": shape.heads}
    return keras_vit.VisionTransformer(
        image_size=shape.size,
        patch_size=shape.patch,
        num_classes=shape.classes,
        patch_dropout=patch_dropout,
        gelu="erf",  # as KerasHub and transformers
        dtype=dtype,
        **sizes,
    )


def hub_model(shape, dtype):
    import keras
    from keras_hub.models import ViTBackbone

    sizes = {"num_layers": shape.depth, "num_heads": shape.heads, "hidden_dim": shape.width, "mlp_dim": shape.mlp_dim}
    backbone = ViTBackbone((shape.size, shape.size, 3), shape.patch, **sizes, dtype=dtype)
    logits = keras.layers.Dense(shape.classes, dtype="float32")(backbone.output[:, 0])
    return keras.Model(backbone.input, logits)


def torch_step(shape, precision, num_threads, inference):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    sizes = {"hidden_size": shape.width, "num_attention_heads": shape.heads, "intermediate_size": shape.mlp_dim}
    image = {"image_size": shape.size, "patch_size": shape.patch}
    config = ViTConfig(num_hidden_layers=shape.depth, num_labels=shape.classes, **image, **sizes)
    model = ViTForImageClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    images = torch.rand(shape.batch, 3, shape.size, shape.size) * 2 - 1
    labels = torch.randint(shape.classes, (shape.batch,))

    def logits():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return float(model(images).logits[0, 0])

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = torch.nn.functional.cross_entropy(model(images).logits.float(), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    if inference:
        model.eval()
        return logits
    return step


def matrix_product_step(shape, precision, num_threads, inference):
    """The matrix products of the MLP's two Dense layers, forward and backward, repeated to the FLOP of a step.

    For inference the same products, a third as often.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokens = shape.batch * shape.tokens
    activations = [tf.cast(tf.random.normal((tokens, units)), precision) for units in (shape.width, shape.mlp_dim)]
    kernel = tf.cast(tf.random.normal((shape.width, shape.mlp_dim)), precision)
    repeats = round(shape.batch * shape.gflop_per_image * 1e9 / (6 * tokens * shape.width * shape.mlp_dim))
    repeats = round(repeats / 3) if inference else repeats

    def step():
        for _ in range(repeats):
            tf.matmul(activations[0], kernel)
            tf.matmul(activations[1], kernel, transpose_b=True)
            last = tf.matmul(activations[0], activations[1], transpose_a=True)
        return float(last[0, 0])

    return step


def serve(library, precision, shape, arguments):
    """Runs one step for each line of standard input; prints its wall-clock and CPU seconds."""
    num_threads, inference = arguments.num_threads, arguments.inference
    if library == UPPER_BOUND:
        step = matrix_product_step(shape, precision, num_threads, inference)
    elif library == "transformers":
        step = torch_step(shape, precision, num_threads, inference)
    else:
        rate = arguments.patch_dropout if library == PATCH_DROPOUT else 0.0
        build = partial(hub_model, shape) if library == "KerasHub" else partial(our_model, shape, patch_dropout=rate)
        step = keras_step(build, shape, precision, num_threads, inference)
    step(), step()
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        print("seconds", time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def read_numbers(server, word):
    """The numbers of the next line that starts with the word; libraries print other lines."""
    for line in server.stdout:
        if line.startswith(word):
            return [float(number) for number in line.split()[1:]]
    raise SystemExit(f"A model's process exited with status {server.wait()}; its message is above.")


def measure(cases, arguments):
    """Seconds of each round by case; the cases take turns."""
    servers = {}
    try:
        for case in cases:
            options = ["--num-threads", str(arguments.num_threads), "--shape", arguments.shape]
            options += ["--patch-dropout", str(arguments.patch_dropout)] if arguments.patch_dropout else []
            options += ["--inference"] if arguments.inference else []
            command = [sys.executable, __file__, *options, "--serve", *case]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            servers[case] = subprocess.Popen(command, **pipes, env=environment)
            read_numbers(servers[case], "ready")
        seconds = {case: [] for case in cases}
        for _ in range(arguments.rounds):
            for case, server in servers.items():
                print(file=server.stdin, flush=True)
                wall, cpu = read_numbers(server, "seconds")
                seconds[case].append(wall if arguments.clock == "wall" else cpu / arguments.num_threads)
        return seconds
    finally:
        for server in servers.values():
            server.stdin.close()
            server.wait()


def installed(library):
    missing = [name for name in PEERS.get(library, ()) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Skipping {library}: pip install {' '.join(missing).replace('_', '-')}", file=sys.stderr)
    return not missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="s16")
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--inference", action="store_true", help="measure the forward pass alone")
    parser.add_argument("--patch-dropout", type=float, default=0.0, help="compare keras_vit with and without it")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(*arguments.serve, SHAPES[arguments.shape], arguments)
    compared = ("keras_vit", PATCH_DROPOUT) if arguments.patch_dropout else LIBRARIES
    libraries = [library for library in compared if installed(library)]
    references = ("keras_vit",) if arguments.patch_dropout else ("KerasHub", UPPER_BOUND)
    headings = {"KerasHub": "ratio to KerasHub", UPPER_BOUND: "fraction of the upper bound"}
    columns = ["", "precision", "images/s", *(headings.get(name, f"ratio to {name}") for name in references)]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for precision in ("float32", "bfloat16"):
        seconds = measure([(name, precision) for name in libraries], arguments)
        report(seconds, references, SHAPES[arguments.shape].batch)


def report(seconds, references, batch):
    for (library, precision), own in seconds.items():
        row = [library, precision, f"{batch / statistics.median(own):.1f}"]
        for name in references:
            other = (name, precision)
            # Ratios within each turn.
            pairs = zip(seconds.get(other, ()), own)
            row.append(f"{statistics.median([a / b for a, b in pairs]):.2f}" if other in seconds else "")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
