"""What each format of TFLite loses of trained models, and what choosing ranges brings to those that have some.

Needs keras_vit[tensorflow,recipes,export].
Command: python benchmarks/quantization.py runs/c10/model.keras --dataset cifar10
         python benchmarks/quantization.py runs/s16/model.keras runs/b16/model.keras --dataset digits --images 500
Each file is run on the first images of the test split beside Keras in float32. "min-max": no evening out of channels,
and ranges from the smallest to the largest value seen (`write_tflite(naive=True)`).
"""

import argparse
import tempfile
from pathlib import Path

import keras_vit
from keras_vit_cli.export.command import Export
from keras_vit_cli.export.data import ExportData
from keras_vit.export import FORMATS, check_parity, parity_table, write_tflite
from keras_vit.export.tflite.quantize import STATIC


def rows(model, data):
    with tempfile.TemporaryDirectory() as folder:
        naive = write_tflite(model, Path(folder) / "naive", list(STATIC), data.calibration, naive=True)
        files = {f"{name}, min-max": path for name, path in naive.items()}
        files = write_tflite(model, Path(folder) / "chosen", FORMATS, data.calibration) | files
        return check_parity(model, dict(sorted(files.items())), data.pixels, data.answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="whatever keras_vit.load takes")
    parser.add_argument("--dataset", required=True, help="digits, folder:/path, or of TensorFlow Datasets")
    parser.add_argument("--images", type=int, default=2000, help="of the test split")
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
        print(f"\n{name}: {model.count_params():,} weights, {len(data.pixels):,} images\n", flush=True)
        print(parity_table(rows(model, data)), flush=True)


if __name__ == "__main__":
    main()
