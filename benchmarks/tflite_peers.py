"""The peers of tflite.py, each in an environment of its own, which tflite.py creates and starts this file in.

tflite_peers.py PEER FOLDER NAME: writes FOLDER/<peer>-<format> from FOLDER/timm.safetensors, weights of timm's model
NAME, or from FOLDER/transformers. Replies with a line of JSON for each file.
tflite_peers.py time FILE: answers each number on standard input with the milliseconds of as many calls of a .pte file.
tflite_peers.py run FILE FOLDER: writes the outputs of a .pte file for FOLDER/test.npy to FOLDER/outputs.npy.
Images are prepared as the model takes them, (n, H, W, 3) float32.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

# The packages of each peer.
PEERS = {
    "litert-torch": ("litert-torch", "ai-edge-quantizer", "timm"),
    "executorch": ("executorch", "timm"),
    "keras-hub": ("keras-hub", "tensorflow", "safetensors"),
}


def timm_model(folder, name):
    """timm's model with the weights, and the calibration images, (1, 3, H, W) each."""
    import timm
    import torch
    from safetensors.torch import load_file

    model = timm.create_model(name)
    model.load_state_dict(load_file(folder / "timm.safetensors"))
    images = np.load(folder / "calibration.npy").transpose(0, 3, 1, 2)
    return model.eval(), list(torch.from_numpy(images.copy()).split(1))


def litert_torch_files(folder, name):
    """Yields the format of each file, and a function that writes it to a path."""
    import litert_torch
    from ai_edge_quantizer import quantizer, recipe

    model, images = timm_model(folder, name)

    def write(path, preset=None):
        litert_torch.convert(model, (images[0],)).export(str(path))
        if preset is None:
            return
        work = quantizer.Quantizer(str(path))
        work.load_quantization_recipe(preset())
        data = {"serving_default": [{"args_0": image.numpy()} for image in images]}
        ranges = work.calibrate(data) if work.need_calibration else None
        work.quantize(ranges).export_model(str(path), overwrite=True)

    yield "float32.tflite", write
    presets = {"dynamic-int8": recipe.dynamic_wi8_afp32, "int8": recipe.static_wi8_ai8}
    for kind, preset in (presets | {"int4-weights": recipe.dynamic_wi4b32_afp32}).items():
        yield f"{kind}.tflite", lambda path, preset=preset: write(path, preset)


def executorch_files(folder, name):
    """As `litert_torch_files`; XNNPACK's quantizer leaves all but linear layers and convolutions in float."""
    import torch
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as partitioners
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    model, images = timm_model(folder, name)
    partitioner = [partitioners.XnnpackDynamicallyQuantizedPartitioner(), partitioners.XnnpackPartitioner()]

    def write(path, dynamic=None):
        exported = torch.export.export(model, (images[0],))
        if dynamic is not None:
            config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
            prepared = prepare_pt2e(exported.module(), xnnpack_quantizer.XNNPACKQuantizer().set_global(config))
            for image in images[:1] if dynamic else images:
                prepared(image)
            exported = torch.export.export(convert_pt2e(prepared), (images[0],))
        path.write_bytes(to_edge_transform_and_lower(exported, partitioner=partitioner).to_executorch().buffer)

    yield "float32.pte", write
    yield "dynamic-int8.pte", lambda path: write(path, True)
    yield "int8-linear.pte", lambda path: write(path, False)


def keras_hub_files(folder, name):
    """As `litert_torch_files`."""
    import keras
    import tensorflow as tf
    from keras_hub.models import ViTImageClassifier

    classifier = ViTImageClassifier.from_preset(str(folder / "transformers"))
    images = np.load(folder / "calibration.npy")
    inputs = keras.Input(images.shape[1:], batch_size=1)
    model = keras.Model(inputs, classifier(inputs))
    dynamic = {"optimizations": [tf.lite.Optimize.DEFAULT]}
    # from_saved_model's only signature takes the image under the name of the layer
    examples = lambda: ([image[None]] for image in images)  # noqa: E731
    integers = {
        "representative_dataset": examples,
        "target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]},
    }
    for kind, options in {"float32": {}, "dynamic-int8": dynamic, "int8": dynamic | integers}.items():
        yield (
            f"{kind}.tflite",
            lambda path, options=options: model.export(path, format="litert", verbose=False, **options),
        )


FILES = {"litert-torch": litert_torch_files, "executorch": executorch_files, "keras-hub": keras_hub_files}


def convert(peer, folder, name):
    for file, write in FILES[peer](folder, name):
        path = folder / f"{peer}-{file}"
        seconds, cpu = time.perf_counter(), time.process_time()
        write(path)
        reply = {"seconds": time.perf_counter() - seconds, "cpu_seconds": time.process_time() - cpu}
        print(json.dumps({"path": str(path), **reply}), flush=True)


def executorch_method(path):
    """A function from an image (1, 3, H, W), a tensor, to logits (1, C)."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    method = program.load_method("forward")
    return lambda image, program=program: method.execute([image])[0]


def run(path, folder):
    import torch

    call = executorch_method(path)
    images = torch.from_numpy(np.load(folder / "test.npy").transpose(0, 3, 1, 2).copy())
    np.save(folder / "outputs.npy", np.concatenate([call(image[None]).numpy().copy() for image in images]))


def time_calls(path, size):
    """Speaks the protocol of export/benchmark/worker.py."""
    import torch

    call, image = executorch_method(path), torch.rand(1, 3, size, size)
    for _ in range(5):
        call(image)
    print("{}", flush=True)
    for line in sys.stdin:
        call(image)
        milliseconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            call(image)
            milliseconds.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"milliseconds": milliseconds}), flush=True)


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    if task == "time":
        time_calls(Path(arguments[0]), int(arguments[1]))
    elif task == "run":
        run(Path(arguments[0]), Path(arguments[1]))
    else:
        convert(task, Path(arguments[0]), arguments[1])
