"""Latency of TFLite files of ViT: `write_tflite` and KerasHub's layers with TensorFlow's converter.

Requires vit-for-keras[tensorflow,export] and keras-hub.
Command: python benchmarks/tflite.py                     # Ti/16, S/16 and B/16 at 224 pixels, 2 threads; some minutes
         python benchmarks/tflite.py --models S/16 --num-runs 200
KerasHub's model is converted from a SavedModel of batch 1, in float32, dynamic-range and full int8. Weights and images
are random. The files of a model are timed in turns of ten calls, each in a separate process, so that load on the
machine affects all; compare the ratios.
"""

import argparse
import importlib.util
import tempfile
from pathlib import Path

import numpy as np

SIZE, CLASSES = 224, 1000
COUNTERPARTS = {"float32": "float32", "dynamic-int8": "dynamic-int8", "int8": "int8", "mixed-int8": "dynamic-int8"}


def write_keras_vit_files(name, folder, images):
    import keras_vit
    from keras_vit.export import write_tflite

    model = keras_vit.ViT(name, image_size=SIZE, num_classes=CLASSES)
    random = np.random.default_rng(0)
    model.head.kernel.assign(0.05 * random.standard_normal(model.head.kernel.shape))
    formats = ("float32", "dynamic-int8", "mixed-int8", "int8")
    return {f"keras_vit {kind}": path for kind, path in write_tflite(model, folder, formats, images).items()}


def write_keras_hub_files(name, folder, images):
    """float32, dynamic-range and full int8 files of TensorFlow's converter, for inputs in [-1, 1]."""
    import keras
    import tensorflow as tf
    from keras_hub.models import ViTBackbone

    from keras_vit.variants import parse_variant

    sizes = parse_variant(name)
    backbone = ViTBackbone(
        (SIZE, SIZE, 3),
        sizes["patch_size"],
        num_layers=sizes["depth"],
        num_heads=sizes["num_heads"],
        hidden_dim=sizes["width"],
        mlp_dim=sizes["mlp_dim"],
    )
    head = keras.layers.Dense(CLASSES, activation="softmax")
    model = keras.Model(backbone.input, head(backbone.output[:, 0]))
    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32, name="images")
    archive.add_endpoint("classify", lambda images: model(images, training=False), input_signature=[spec])
    archive.write_out(folder / "hub", verbose=False)
    files = {}
    for kind in ("float32", "dynamic-int8", "int8"):
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "hub"), signature_keys=["classify"])
        if kind != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "int8":
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            examples = [("classify", {"images": image[None] / 127.5 - 1}) for image in images]
            converter.representative_dataset = lambda examples=examples: iter(examples)
        files[f"KerasHub {kind}"] = folder / f"hub-{kind}.tflite"
        files[f"KerasHub {kind}"].write_bytes(converter.convert())
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["Ti/16", "S/16", "B/16"])
    parser.add_argument("--num-runs", type=int, default=60)
    parser.add_argument("--num-threads", type=int, default=2)
    arguments = parser.parse_args()
    if importlib.util.find_spec("keras_hub") is None:
        parser.error("the comparison requires KerasHub: pip install keras-hub")
    from keras_vit.export.benchmark import compare

    images = np.random.default_rng(1).integers(0, 256, (20, SIZE, SIZE, 3)).astype("float32")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            files = write_keras_hub_files(name, Path(folder), images)
            files |= write_keras_vit_files(name, Path(folder) / "keras_vit", images)
            results = compare(list(files.values()), arguments.num_threads, arguments.num_runs)
            found = dict(zip(files, results))
        print(f"\n{name}, {SIZE} pixels, {arguments.num_threads} threads, median of {arguments.num_runs} calls\n")
        print("| | median | / KerasHub | / keras_vit float32 | partitions | size |\n|---|---|---|---|---|---|")
        for label, one in found.items():
            kind = label.split()[1]
            to_hub = one.median_ms / found[f"KerasHub {COUNTERPARTS[kind]}"].median_ms
            to_float32 = one.median_ms / found["keras_vit float32"].median_ms
            values = f"{one.median_ms:.1f} ms | {to_hub:.2f} | {to_float32:.2f} | {one.num_partitions}"
            print(f"| {label} | {values} | {one.size_bytes / 1e6:.1f} MB |", flush=True)


if __name__ == "__main__":
    main()
