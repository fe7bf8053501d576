"""Speed of a training step of ViT-S/16 at 224 pixels on this machine: compared with KerasHub and transformers.

Requires keras_vit[tensorflow] and: pip install keras-hub torch transformers
Command: python benchmarks/train_step.py --num-threads 1
A step is forward pass, backward pass and AdamW, on 16 images and 1,000 classes. Each model runs in a separate process;
they take turns, so that other load on the machine affects all of them. The upper bound is the speed of matrix products
of the model's sizes alone, measured in the same turns; a step is counted as 3 x 9.2 GFLOP per image. With `--clock
cpu`, images per second are computed from the process's CPU time and the number of threads: more stable on a shared
machine.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time

BATCH, SIZE, PATCH, CLASSES = 16, 224, 16, 1000
DEPTH, WIDTH, HEADS, MLP_DIM = 12, 384, 6, 1536
GFLOP_PER_IMAGE = 3 * 9.2
PEERS = {"KerasHub": ("keras_hub",), "transformers": ("torch", "transformers")}
UPPER_BOUND = "matrix products"
LIBRARIES = (UPPER_BOUND, "KerasHub", "keras_vit", "transformers")


def keras_step(build, precision, num_threads, jit):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras

    keras.utils.set_random_seed(0)
    model = build("mixed_bfloat16" if precision == "bfloat16" else "float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=jit)
    model.optimizer.build(model.trainable_variables)
    batch = tf.random.uniform((BATCH, SIZE, SIZE, 3), -1, 1), tf.random.uniform((BATCH,), 0, CLASSES, tf.int32)
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    model.make_train_function()
    return lambda: float(model.train_function(batches)["loss"])


def our_model(dtype):
    import keras_vit

    return keras_vit.ViT_S16(image_size=SIZE, num_classes=CLASSES, dtype=dtype)


def hub_model(dtype):
    import keras
    from keras_hub.models import ViTBackbone

    shape = {"num_layers": DEPTH, "num_heads": HEADS, "hidden_dim": WIDTH, "mlp_dim": MLP_DIM}
    backbone = ViTBackbone((SIZE, SIZE, 3), PATCH, **shape, dtype=dtype)
    logits = keras.layers.Dense(CLASSES, dtype="float32")(backbone.output[:, 0])
    return keras.Model(backbone.input, logits)


def torch_step(precision, num_threads):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    shape = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": MLP_DIM}
    config = ViTConfig(num_hidden_layers=DEPTH, image_size=SIZE, patch_size=PATCH, num_labels=CLASSES, **shape)
    model = ViTForImageClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    images, labels = torch.rand(BATCH, 3, SIZE, SIZE) * 2 - 1, torch.randint(CLASSES, (BATCH,))

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = torch.nn.functional.cross_entropy(model(images).logits.float(), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def matrix_product_step(precision, num_threads):
    """The matrix products of the MLP's two Dense layers, forward and backward, repeated to the FLOP of a step."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokens = BATCH * ((SIZE // PATCH) ** 2 + 1)
    activations = [tf.cast(tf.random.normal(shape), precision) for shape in ((tokens, WIDTH), (tokens, MLP_DIM))]
    kernel = tf.cast(tf.random.normal((WIDTH, MLP_DIM)), precision)
    repeats = round(BATCH * GFLOP_PER_IMAGE * 1e9 / (6 * tokens * WIDTH * MLP_DIM))

    def step():
        for _ in range(repeats):
            tf.matmul(activations[0], kernel)
            tf.matmul(activations[1], kernel, transpose_b=True)
            last = tf.matmul(activations[0], activations[1], transpose_a=True)
        return float(last[0, 0])

    return step


def serve(library, precision, mode, num_threads):
    """Runs one step for each line of standard input; prints its wall-clock and CPU seconds."""
    if library == UPPER_BOUND:
        step = matrix_product_step(precision, num_threads)
    elif library == "transformers":
        step = torch_step(precision, num_threads)
    else:
        build = our_model if library == "keras_vit" else hub_model
        step = keras_step(build, precision, num_threads, jit=mode == "XLA")
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
            command = [sys.executable, __file__, "--num-threads", str(arguments.num_threads), "--serve", *case]
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
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument(
        "--modes", nargs="+", choices=("graph", "XLA"), default=["graph"], help="how the Keras models are run"
    )
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(*arguments.serve, arguments.num_threads)
    libraries = [library for library in LIBRARIES if installed(library)]
    print("| | precision | images/s | ratio to KerasHub | fraction of the upper bound |\n|---|---|---|---|---|")
    for precision in ("float32", "bfloat16"):
        keras_modes = {name: arguments.modes for name in ("KerasHub", "keras_vit")}
        cases = [(name, precision, mode) for name in libraries for mode in keras_modes.get(name, [""])]
        report(measure(cases, arguments), arguments.modes[0])


def report(seconds, first_mode):
    for (library, precision, mode), own in seconds.items():
        row = [f"{library} {mode if mode != 'graph' else ''}".strip(), precision]
        row.append(f"{BATCH / statistics.median(own):.1f}")
        for other in (("KerasHub", precision, first_mode), (UPPER_BOUND, precision, "")):
            # Ratios within each turn.
            pairs = zip(seconds.get(other, ()), own)
            row.append(f"{statistics.median([a / b for a, b in pairs]):.2f}" if other in seconds else "")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
