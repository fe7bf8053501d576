"""A .tflite file without TensorFlow: Keras on JAX, StableHLO, litert-converter.

Requires keras_vit and jax for the first command; for the second litert-converter and ai-edge-litert, also elsewhere.
Command: KERAS_BACKEND=jax python benchmarks/stablehlo.py trace Ti/16 folder
         python benchmarks/stablehlo.py convert folder
The first writes the forward pass with its weights and what it computes for four random images, the second converts it,
runs the file in LiteRT and compares. Weights are random.
"""

import argparse
import collections
import time
from pathlib import Path

import numpy as np


def trace(variant, folder):
    import jax
    import keras

    import keras_vit

    keras.utils.set_random_seed(0)
    model, random = keras_vit.ViT(variant, image_size=224, num_classes=1000), np.random.default_rng(0)
    model.head.kernel.assign(0.3 * random.standard_normal(model.head.kernel.shape))
    classify = jax.jit(lambda images: jax.nn.softmax(model(images / 127.5 - 1, training=False)))
    module = classify.lower(jax.ShapeDtypeStruct((1, 224, 224, 3), "float32")).compiler_ir("stablehlo")
    (folder / "model.mlir").write_text(module.operation.get_asm(large_elements_limit=None))
    images = random.integers(0, 256, (4, 224, 224, 3)).astype("float32")
    expected = np.concatenate([classify(image[None]) for image in images])
    np.savez(folder / "expected.npz", images=images, expected=expected)


def convert(folder):
    from ai_edge_litert.interpreter import Interpreter
    from litert_converter import converter_api_ext as converter
    from litert_converter.mlir import ir, passmanager

    start, context = time.time(), ir.Context()
    converter.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse((folder / "model.mlir").read_text())
        converter.set_signature(module.operation, "classify", ["images"], ["probabilities"])
        converter.run_convert_to_tfl_passes(module, passmanager.PassManager(), converter.ConvertToTFLConfig())
        content = converter.export_flatbuffer_to_bytes(module.operation)
    (folder / "model.tflite").write_bytes(content)
    print(f"{len(content) / 1e6:.1f} MB in {time.time() - start:.1f} s")
    runner = Interpreter(model_path=str(folder / "model.tflite")).get_signature_runner("classify")
    saved = np.load(folder / "expected.npz")
    found = np.concatenate([runner(images=image[None])["probabilities"] for image in saved["images"]])
    print(f"largest difference from Keras: {np.abs(found - saved['expected']).max():.1e}")
    details = Interpreter(model_path=str(folder / "model.tflite"))._get_ops_details()
    print(dict(collections.Counter(one["op_name"] for one in details)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=["trace", "convert"])
    parser.add_argument("variant", nargs="?", default="Ti/16")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.step == "trace":
        trace(arguments.variant, arguments.folder)
    else:
        convert(arguments.folder)


if __name__ == "__main__":
    main()
