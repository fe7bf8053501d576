"""DeiT-Ti, EfficientNet-B0 and Swin-Ti by one recipe: accuracy on CIFAR-10, and size and speed as .tflite files.

Requires keras_vit[tensorflow,recipes,export], keras-hub, and CIFAR-10's images in IMAGES/train/<class> and IMAGES/test.
Command: python benchmarks/comparators.py IMAGES                     # from random weights
         python benchmarks/comparators.py IMAGES --deit DeiT_Ti.npz  # DeiT-Ti also from these weights
         python benchmarks/comparators.py IMAGES --steps 0 --size 224  # sizes and speeds only
Accuracies are of the same 1,000 test images, with Wilson's 95 % interval, which counts images, not seeds. Files are
timed in turns, each in a process of its own: compare the ratios.
"""

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.benchmark import compare
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.recipes import train
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.recipe import Data, Optimizer, Supervised

FORMATS = ("float32", "dynamic-int8", "int8")  # float32 has the accuracy of Keras


def classifiers(size, deit):
    """Yields names and classifiers with random weights, but for those of the file `deit`."""
    yield "DeiT-Ti", keras_vit.ViT("Ti/16", image_size=size, gelu="erf", preprocessing="imagenet")
    efficientnet = keras.applications.EfficientNetB0(include_top=False, weights=None, input_shape=(None, None, 3))
    yield "EfficientNet-B0", keras_vit.ImageClassifier(efficientnet, image_size=size, preprocessing="pixels")
    from keras_hub.models import SwinTransformerBackbone

    window = 7 if size % 224 == 0 else 4  # KerasHub's windows must divide all maps
    swin = SwinTransformerBackbone((size, size, 3), 96, (2, 2, 6, 2), (3, 6, 12, 24), window)
    yield "Swin-Ti", keras_vit.ImageClassifier(swin, preprocessing="imagenet")
    if deit:
        yield "DeiT-Ti from ImageNet", keras_vit.load(deit, image_size=size, preprocessing="imagenet")


def trained(model, dataset: str, size: int, steps: int):
    """The model after the recipe of all; only the scale of the pixels is the model's."""
    scaled = {"mean": model.preprocessing.mean, "std": model.preprocessing.std}
    data = Data(dataset, validation_split=None, image_size=size, batch_size=32, crop="pad", **scaled)
    optimizer = Optimizer("adamw", 5e-4, warmup_steps=steps // 10, weight_decay=0.05)
    return train(Supervised(data=data, optimizer=optimizer, total_steps=steps), start=model)[0]


def accuracy(outputs, labels) -> str:
    """Top-1 with Wilson's interval."""
    count, z = len(labels), 1.96
    p = np.mean(outputs.argmax(-1) == labels)
    middle, half = p + z**2 / (2 * count), z * np.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    low, high = np.array([middle - half, middle + half]) / (1 + z**2 / count)
    return f"{p:.1%} ({low:.1%} to {high:.1%})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--deit", help="file of DeiT-Ti's weights")
    parser.add_argument("--size", type=int, default=128, help="pixels")
    parser.add_argument("--steps", type=int, default=60, help="of 32 images")
    options = parser.parse_args()
    dataset = open_dataset(Data(f"folder:{options.images}"))
    prepare = keras_vit.Preprocessing(options.size)

    def read(split, count):
        """Images of all classes, (count, size, size, 3) in [0, 255], and their labels."""
        indices = np.linspace(0, dataset.splits[split] - 1, count, dtype=int)
        (images, labels), *_ = decoded_images(dataset, split, count, indices=indices)
        return np.asarray(prepare.pixels(images)), labels

    (images, labels), (calibration, _) = read("test", 1000), read("train", 100)
    cells: dict[tuple, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, model in classifiers(options.size, options.deit):
            model = model.with_head(len(dataset.class_names))
            model = trained(model, dataset.name, options.size, options.steps) if options.steps else model
            for kind, file in write_tflite(model, Path(folder) / name, FORMATS, calibration).items():
                files[name, kind] = file
                cells[name, kind] = f"{accuracy(run_tflite(file, images)[0], labels)}, {file.stat().st_size / 1e6:.1f}"
                print(name, kind, cells[name, kind], flush=True)
        for key, result in zip(files, compare(list(files.values()), num_runs=100)):
            cells[key] += f", {result.median_ms:.2f}"
    print(f"\n| | {' | '.join(f'{kind}: top-1, MB, ms' for kind in FORMATS)} |\n|{'---|' * 4}")
    for name in dict.fromkeys(name for name, _ in cells):
        print(f"| {name} | {' | '.join(cells[name, kind] for kind in FORMATS)} |")


if __name__ == "__main__":
    main()
