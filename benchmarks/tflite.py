"""How long TFLite files of ViT take on this machine: ours beside KerasHub's layers, converted as people convert them.

Needs keras_vit[tensorflow,export] and keras-hub.
Command: python benchmarks/tflite.py                     # Ti/16, S/16 and B/16 at 224 pixels, 2 threads; some minutes
         python benchmarks/tflite.py --models S/16 --runs 200
KerasHub's model goes through a SavedModel of batch 1 and TensorFlow's converter, with its dynamic and full int8; ours
through `write_tflite`. Random weights and images. The files of a model are timed in turns of ten calls in one run,
each in a process of its own, so that a busy machine hurts all alike; read the ratios.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

SIZE, CLASSES = 224, 1000
PEERS = {"float32": "float32", "dynamic-int8": "dynamic-int8", "int8": "int8", "mixed-int8": "int8"}


def our_files(name, folder, pixels):
    import keras_vit
    from keras_vit.export import write_tflite

    model = keras_vit.ViT(name, image_size=SIZE, num_classes=CLASSES)
    random = np.random.default_rng(0)
    model.head.kernel.assign(0.05 * random.standard_normal(model.head.kernel.shape))
    formats = ("float32", "dynamic-int8", "mixed-int8", "int8")
    return {f"keras_vit {kind}": path for kind, path in write_tflite(model, folder, formats, pixels).items()}


def hub_files(name, folder, pixels):
    """Float, dynamic int8 and full int8 of TensorFlow's converter, in the model's range of pixels."""
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
            examples = [("classify", {"images": image[None] / 127.5 - 1}) for image in pixels]
            converter.representative_dataset = lambda examples=examples: iter(examples)
        files[f"KerasHub {kind}"] = folder / f"hub-{kind}.tflite"
        files[f"KerasHub {kind}"].write_bytes(converter.convert())
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["Ti/16", "S/16", "B/16"])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    from keras_vit.export.benchmark.compare import compare

    pixels = np.random.default_rng(1).integers(0, 256, (20, SIZE, SIZE, 3)).astype("float32")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            files = hub_files(name, Path(folder), pixels) | our_files(name, Path(folder) / "ours", pixels)
            found = dict(zip(files, compare(list(files.values()), arguments.threads, arguments.runs, profile=False)))
        print(f"\n{name}, {SIZE} pixels, {arguments.threads} threads, median of {arguments.runs} calls\n")
        print("| | median | of KerasHub's | of our float32 | partitions | size |\n|---|---|---|---|---|---|")
        for label, one in found.items():
            kind = label.split()[1]
            of_peer = one.median_ms / found[f"KerasHub {PEERS[kind]}"].median_ms
            of_float = one.median_ms / found["keras_vit float32"].median_ms
            figures = f"{one.median_ms:.1f} ms | {of_peer:.2f} | {of_float:.2f} | {one.partitions}"
            print(f"| {label} | {figures} | {one.size_bytes / 1e6:.1f} MB |", flush=True)


if __name__ == "__main__":
    main()
