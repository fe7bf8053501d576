"""Accuracy drop of trained models in each TFLite format, with and without equalization.

Requires keras_vit[tensorflow,recipes,export].
Command: python benchmarks/quantization.py runs/c10/model.keras --dataset cifar10
         python benchmarks/quantization.py runs/s16/model.keras runs/b16/model.keras --dataset digits --images 500
Each file is compared with Keras in float32 on the first images of the test split. "min-max": without
equalization (`write_tflite(equalize=False)`).
"""

import argparse
import tempfile
from pathlib import Path

import keras_vit
from keras_vit.export import FORMATS, check_parity, parity_table, write_tflite
from keras_vit.export.tflite.quantize import STATIC
from keras_vit_cli.export.command import Export
from keras_vit_cli.export.data import ExportData


def rows(model, data):
    with tempfile.TemporaryDirectory() as folder:
        min_max = write_tflite(model, Path(folder) / "min_max", list(STATIC), data.calibration, equalize=False)
        files = {f"{name}, min-max": path for name, path in min_max.items()}
        files = write_tflite(model, Path(folder) / "equalized", FORMATS, data.calibration) | files
        return check_parity(model, dict(sorted(files.items())), data.images, data.labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="names or files that keras_vit.load accepts")
    parser.add_argument("--dataset", required=True, help="digits, folder:/path, or a name of TensorFlow Datasets")
    parser.add_argument("--images", type=int, default=2000, help="number of images of the test split")
    parser.add_argument("--calibration-images", type=int, default=200)
    arguments = parser.parse_args()
    for name in arguments.models:
        model = keras_vit.load(name)
        options = Export(
            weights=name,
            formats=tuple(FORMATS),
            dataset=arguments.dataset,
            check_images=arguments.images,
            calibration_images=arguments.calibration_images,
        )
        data = ExportData.read(options, model)
        print(f"\n{name}: {model.count_params():,} weights, {len(data.images):,} images\n", flush=True)
        print(parity_table(rows(model, data)), flush=True)


if __name__ == "__main__":
    main()
