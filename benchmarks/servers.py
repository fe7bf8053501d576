"""Latency on a CPU of one ViT, of this project and of timm, in TensorFlow, PyTorch, onnxruntime and OpenVINO.

Requires vit-for-keras[tensorflow,export,onnx]; downloads `PACKAGES` (6 GB) into the folder ENVIRONMENT, once.
Command: python benchmarks/servers.py ENVIRONMENT                       # ViT-S/16 at 224 pixels, 1 and 8 images
         python benchmarks/servers.py ENVIRONMENT --model deit_tiny_patch16_224 --num-runs 100
Weights are random, the same for both; inputs are prepared images in float32, logits are compared. Each runs in a
process of its own with two threads, which do not spin while they wait, since other processes may need the CPU. They
take turns of ten calls; the table has the smallest time of each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

SIZE, THREADS, BATCHES = 224, 2, (1, 8)
PACKAGES = ("torch", "timm", "onnx", "onnxscript", "onnxruntime", "openvino")
ROWS = {  # name: runtime, file
    "keras_vit, SavedModel in TensorFlow": ("tensorflow", "saved_model"),
    "keras_vit, ONNX in onnxruntime": ("onnxruntime", "keras_vit.onnx"),
    "keras_vit, ONNX in OpenVINO": ("openvino", "keras_vit.onnx"),
    "timm, torch.compile": ("torch", "timm.safetensors"),
    "timm, ONNX in onnxruntime": ("onnxruntime", "timm.onnx"),
    "timm, ONNX in OpenVINO": ("openvino", "timm.onnx"),
}
PEER = list(ROWS).index("timm, ONNX in onnxruntime")


def write_timm(name, folder):
    """Writes the weights and the ONNX file of timm."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model, images = timm.create_model(name).eval(), torch.zeros(2, 3, SIZE, SIZE)
    for parameter in model.parameters():  # biases are zeros, scales ones
        parameter.data += 0.02 * torch.randn_like(parameter)
    save_file(model.state_dict(), folder / "timm.safetensors")
    options = {"input_names": ["images"], "external_data": False, "verbose": False}
    torch.onnx.export(
        model, (images,), folder / "timm.onnx", dynamic_shapes=[{0: torch.export.Dim("batch")}], **options
    )


def write_keras_vit(folder):
    import keras_vit
    from keras_vit.export import write_onnx, write_saved_model

    model = keras_vit.load(folder / "timm.safetensors", preprocessing="imagenet")
    write_onnx(model, folder / "keras_vit.onnx")
    write_saved_model(model, folder / "saved_model")


def caller(runtime, path, name, images):
    """A function without arguments that returns the logits (B, C) of images (B, H, W, 3)."""
    if runtime == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(THREADS)
        loaded, tensor = tf.saved_model.load(str(path)), tf.constant(images)
        return lambda: loaded.signatures["logits"](images=tensor)["logits"]
    if path.name.startswith("timm"):
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if runtime == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"images": images})[0]
    if runtime == "openvino":
        import openvino

        # Else it computes in bfloat16 where the CPU can.
        exact = {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.compile_model(str(path), "CPU", exact)
        return lambda: compiled(images)[0]
    import timm
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(THREADS)
    model = timm.create_model(name).eval()
    model.load_state_dict(load_file(path))
    return partial(torch.inference_mode()(torch.compile(model)), torch.from_numpy(images))


def serve(runtime, path, name, batch):
    """Replies as export/benchmark/worker.py: the logits, then for each number milliseconds of as many calls."""
    images = np.random.default_rng(0).standard_normal((batch, SIZE, SIZE, 3)).astype("float32")
    call = caller(runtime, path, name, images)
    logits = [np.asarray(call()) for _ in range(3)][-1]
    print(json.dumps({"logits": logits[0].tolist()}), flush=True)
    for count in sys.stdin:
        times = [time.perf_counter()]
        for _ in range(int(count)):
            call()
            times.append(time.perf_counter())
        print(json.dumps({"milliseconds": (1e3 * np.diff(times)).tolist()}), flush=True)


def measure(commands, num_runs):
    """The smallest milliseconds of the commands' processes (rows,), and their logits (rows, C)."""
    from keras_vit.export.benchmark import time_in_turns  # the environment of timm lacks keras_vit

    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # PyTorch's, as onnxruntime's `allow_spinning`
    milliseconds, replies = zip(*time_in_turns(list(zip(ROWS, commands)), num_runs))
    return np.min(milliseconds, axis=1), np.array([reply["logits"] for reply in replies])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("--num-runs", type=int, default=30)
    options = parser.parse_args()
    python = options.environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(options.environment)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder, own = Path(temporary), [str(python), __file__, "--worker", options.model]
        subprocess.run([*own, "write", temporary], stdout=subprocess.DEVNULL, check=True)
        write_keras_vit(folder)
        print(f"| | {' | '.join(f'{batch} images, ms | ratio' for batch in BATCHES)} | difference |")
        print("|---|---|---|---|---|---|", flush=True)
        columns = []
        for batch in BATCHES:
            commands = [[*own, runtime, str(folder / file), str(batch)] for runtime, file in ROWS.values()]
            commands[0][0] = sys.executable  # TensorFlow's
            columns.append(measure(commands, options.num_runs))
    for row, name in enumerate(ROWS):
        cells = [f"{found[row]:.1f} | {found[row] / found[PEER]:.2f}" for found, _ in columns]
        difference = max(np.abs(logits[row] - logits[PEER]).max() for _, logits in columns)
        print(f"| {name} | {' | '.join(cells)} | {difference:.0e} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        name, task, path, *batch = sys.argv[2:]
        write_timm(name, Path(path)) if task == "write" else serve(task, Path(path), name, int(batch[0]))
    else:
        main()
