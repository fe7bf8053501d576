"""Speed and memory of ViT on one GPU in bfloat16: Ti/16, S/16, B/16, L/16 at 224 pixels, against timm and transformers.

Requires keras and jax[cuda13] for keras_vit, torch with timm and transformers for the others; missing ones are skipped.
Command: python benchmarks/gpu.py
keras_vit runs on Keras's JAX backend, the others on PyTorch with their fused attention and torch.compile. Training is
forward pass, backward pass and AdamW with float32 weights and bfloat16 computations (mixed precision); inference is in
bfloat16 throughout. Images are bfloat16 and stay on the GPU: input pipelines are not measured. Each model runs in a
separate process; they compile together and are then timed in turns. The upper bound is one large bfloat16 matrix
product. Memory is the largest amount that was allocated. Errors are those of bfloat16 attention (output; gradients for
query, key, value) against float32. Fractions of the upper bound count the operations of all tokens in all blocks;
keras_vit computes 7 % (L/16: 3.5 %) fewer, those of the last block for tokens that are not read. Without a GPU, tiny
models run on the CPU: this tests the script, nothing else.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from functools import partial

# Depth, width, heads, images per step.
SIZES = {"Ti/16": (12, 192, 3, 512), "S/16": (12, 384, 6, 256), "B/16": (12, 768, 12, 128), "L/16": (24, 1024, 16, 64)}
TINY = {"tiny": (1, 16, 2, 2)}
LIBRARIES = {
    "keras_vit": ("keras", "jax"),
    "timm": ("torch", "timm"),
    "timm, not compiled": ("torch", "timm"),
    "transformers": ("torch", "transformers"),
}
PATCH, CLASSES, TASKS = 16, 1000, ("inference", "training")


def gigaflop(depth, width, image_size):
    """Operations of the forward pass for one image, a multiplication and an addition counted as two."""
    patches = (image_size // PATCH) ** 2
    tokens = patches + 1
    block = 24 * tokens * width**2 + 4 * tokens**2 * width
    return (depth * block + 2 * patches * 3 * PATCH**2 * width + 2 * width * CLASSES) / 1e9


def keras_steps(size, image_size):
    """The two tasks as functions without arguments that start one step and return an array to wait for."""
    import jax
    import keras

    import keras_vit

    depth, width, heads, batch = size
    images = jax.random.normal(jax.random.key(0), (batch, image_size, image_size, 3), "bfloat16")
    labels = jax.random.randint(jax.random.key(1), (batch,), 0, CLASSES)
    shape = {"depth": depth, "width": width, "mlp_dim": 4 * width, "num_heads": heads}
    shape |= {"image_size": image_size, "patch_size": PATCH, "num_classes": CLASSES}
    build = partial(keras_vit.VisionTransformer, gelu="erf", **shape)  # the GELU of timm and transformers
    model = build(dtype="bfloat16")
    weights = [variable.value for variable in model.trainable_variables]
    predict = jax.jit(lambda weights, images: model.stateless_call(weights, [], images, training=False)[0])
    yield lambda: predict(weights, images)

    trained, optimizer = build(dtype="mixed_bfloat16"), keras.optimizers.AdamW(1e-4)
    optimizer.build(trained.trainable_variables)

    def loss(weights, images, labels):
        logits = trained.stateless_call(weights, [], images, training=True)[0]
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights, slots, images, labels):
        value, gradients = jax.value_and_grad(loss)(weights, images, labels)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return weights, slots, value

    state = [[v.value for v in trained.trainable_variables], [v.value for v in optimizer.variables]]

    def train():
        *state[:], value = update(*state, images, labels)
        return value

    yield train


def torch_steps(library, size, image_size):
    """As `keras_steps`."""
    import torch

    depth, width, heads, batch = size
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    images = torch.randn(batch, 3, image_size, image_size, device=device, dtype=torch.bfloat16)
    labels = torch.randint(CLASSES, (batch,), device=device)
    build = partial(torch_model, library.split(",")[0], depth, width, heads, image_size)
    compiled = torch.compile if device == "cuda" and "not compiled" not in library else lambda model: model
    model = compiled(build().to(device, torch.bfloat16).eval())

    @torch.no_grad()
    def predict():
        return model(images)

    yield predict

    trained = compiled(build().to(device).train())
    optimizer = torch.optim.AdamW(trained.parameters(), 1e-4, fused=True)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            logits = trained(images)
        loss = torch.nn.functional.cross_entropy(getattr(logits, "logits", logits).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    yield train


def torch_model(library, depth, width, heads, image_size):
    if library == "timm":
        from timm.models import VisionTransformer

        return VisionTransformer(image_size, PATCH, num_classes=CLASSES, depth=depth, embed_dim=width, num_heads=heads)
    from transformers import ViTConfig, ViTForImageClassification

    shape = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
    config = ViTConfig(num_hidden_layers=depth, image_size=image_size, patch_size=PATCH, num_labels=CLASSES, **shape)
    return ViTForImageClassification._from_config(config, attn_implementation="sdpa")


def device_of(library):
    """A function that waits for the device, and one that returns the largest memory in bytes, None without a GPU."""
    if library == "keras_vit":
        import jax

        stats = jax.devices()[0].memory_stats
        return jax.block_until_ready, lambda: (stats() or {}).get("peak_bytes_in_use")
    import torch

    if not torch.cuda.is_available():
        return (lambda value: value), (lambda: None)
    return (lambda _: torch.cuda.synchronize()), torch.cuda.max_memory_allocated


def serve(library, size, image_size, num_steps):
    """Answers each line of standard input, the name of a task, with its seconds per step; prints memory first."""
    wait, memory = device_of(library)
    tasks = {}
    steps = keras_steps(size, image_size) if library == "keras_vit" else torch_steps(library, size, image_size)
    for task, step in zip(TASKS, steps):
        tasks[task] = step
        for _ in range(3):
            wait(step())
        print("memory", task, memory() or 0, flush=True)
    print("ready", flush=True)
    for line in sys.stdin:
        step, start = tasks[line.strip()], time.perf_counter()
        for _ in range(num_steps):
            last = step()
        wait(last)
        print("seconds", (time.perf_counter() - start) / num_steps, flush=True)


def read_line(server, word):
    """The words of the server's next line that starts with this word; libraries print other lines."""
    for line in server.stdout:
        if line.startswith(word):
            return line.split()[1:]
    raise SystemExit(f"A model's process exited with status {server.wait()}; its message is above.")


def measure(name, libraries, arguments):
    """Seconds per step of each round, and memory in bytes, both by task and library."""
    servers, seconds, memory = {}, {}, {}
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        for library in libraries:
            command = [sys.executable, __file__, "--steps", str(arguments.steps), "--serve", library, name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            servers[library] = subprocess.Popen(command, **pipes, env=environment)
        for library, server in servers.items():
            for task in TASKS:
                memory[task, library] = int(read_line(server, f"memory {task}")[-1])
            read_line(server, "ready")
        for _ in range(arguments.rounds):
            for task in TASKS:
                for library, server in servers.items():
                    print(task, file=server.stdin, flush=True)
                    seconds.setdefault((task, library), []).append(float(read_line(server, "seconds")[0]))
        return seconds, memory
    finally:
        for server in servers.values():
            server.stdin.close()
            server.wait()


def upper_bound():
    """FLOP per second of an 8192 x 8192 x 8192 bfloat16 product, by the better of PyTorch and JAX; None on a CPU."""
    best = None
    for library in ("torch", "jax"):
        if importlib.util.find_spec(library):
            output = subprocess.run([sys.executable, __file__, "--product", library], capture_output=True, text=True)
            found = [float(line.split()[1]) for line in output.stdout.splitlines() if line.startswith("product")]
            best = max([*found, *([best] if best else [])], default=None)
    return best


def time_product(library):
    """Prints FLOP per second of matrix products; nothing without a GPU."""
    if library == "torch":
        import torch

        if not torch.cuda.is_available():
            return
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        product, wait = lambda: a @ b, lambda _: torch.cuda.synchronize()
    else:
        import jax

        if jax.default_backend() != "gpu":
            return
        a, b = (jax.random.normal(jax.random.key(i), (8192, 8192), "bfloat16") for i in range(2))
        product, wait = partial(jax.jit(jax.numpy.matmul), a, b), jax.block_until_ready
    for count in (3, 50):
        start = time.perf_counter()
        for _ in range(count):
            last = product()
        wait(last)
    print("product", 50 * 2 * 8192**3 / (time.perf_counter() - start))


def print_attention_errors():
    """Prints relative errors of bfloat16 attention and its gradients: the fused kernel, and with stored weights."""
    import jax
    import numpy as np
    from keras import ops

    from keras_vit.layers.attention import attention_weights
    from keras_vit.layers.xla.attention import fused_attention

    *inputs, upstream = (jax.random.normal(jax.random.key(i), (4, 6, 197, 64)) for i in range(4))

    @partial(jax.jit, static_argnums=(0, 1))
    def run(attend, dtype, *inputs):
        output, gradient = jax.vjp(attend, *(x.astype(dtype) for x in inputs))
        return output, *gradient(upstream.astype(dtype))

    def stored(query, key, value):
        return ops.matmul(attention_weights(query, key), value)

    with jax.default_matmul_precision("highest"):
        exact = [np.asarray(x, "float64") for x in run(stored, "float32", *inputs)]
    for name, attend in (("fused", partial(fused_attention, training=True)), ("stored weights", stored)):
        pairs = zip(run(attend, "bfloat16", *inputs), exact)
        errors = [np.linalg.norm(np.asarray(a, "float64") - b) / np.linalg.norm(b) for a, b in pairs]
        print(f"Error of attention, {name}: {', '.join(f'{error:.1e}' for error in errors)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=(*SIZES, *TINY), help="the four sizes; tiny without a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="steps per round")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--product", help=argparse.SUPPRESS)
    parser.add_argument("--errors", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.product:
        return time_product(arguments.product)
    if arguments.errors:
        return print_attention_errors()
    if arguments.serve:
        library, name = arguments.serve
        return serve(library, (SIZES | TINY)[name], 32 if name in TINY else 224, arguments.steps)
    if all(map(importlib.util.find_spec, LIBRARIES["keras_vit"])):
        subprocess.run([sys.executable, __file__, "--errors"], env={**os.environ, "KERAS_BACKEND": "jax"}, check=True)
    libraries = [name for name, needed in LIBRARIES.items() if all(map(importlib.util.find_spec, needed))]
    print("Not installed:", ", ".join(sorted(set(LIBRARIES) - set(libraries))) or "none", file=sys.stderr)
    bound = upper_bound()
    print(f"Upper bound: {bound / 1e12:.0f} TFLOP/s" if bound else "No GPU: tiny models on the CPU.", flush=True)
    print("| | images per step | task | images/s | ratio to timm | fraction of the upper bound | memory |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.sizes or (SIZES if bound else TINY):
        report(name, *measure(name, libraries, arguments), bound)


def report(name, seconds, memory, bound):
    depth, width, _, batch = (SIZES | TINY)[name]
    for (task, library), own in sorted(seconds.items()):
        speed = batch / statistics.median(own)
        peer = seconds.get((task, "timm"))
        ratio = f"{statistics.median([a / b for a, b in zip(peer, own)]):.2f}" if peer else ""  # within each turn
        work = gigaflop(depth, width, 224) * 1e9 * (3 if task == "training" else 1)
        fraction = f"{speed * work / bound:.2f}" if bound else ""
        used = f"{memory[task, library] / 1e9:.2f} GB" if memory[task, library] else ""
        row = (f"{name} {library}", batch, task, f"{speed:,.0f}", ratio, fraction, used)
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
