"""DeiT-Ti, EfficientNet-B0 and Swin-Ti by one recipe: accuracy on CIFAR-10, and size and speed as .tflite files.

Requires keras_vit[tensorflow,recipes,export], keras-hub, and CIFAR-10's images in IMAGES/train/<class> and IMAGES/test.
Command: python benchmarks/comparators.py IMAGES                     # from random weights
         python benchmarks/comparators.py IMAGES --deit DeiT_Ti.npz  # DeiT-Ti also from these weights
         python benchmarks/comparators.py IMAGES --steps 0 --size 224 --test-images 20  # files only
Accuracies are of the same test images, with Wilson's 95 % interval, which counts images, not seeds. Files are timed in
turns, each in a process of its own: compare the ratios.
"""

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np
from scipy.stats import binomtest

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.benchmark import compare
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.recipes import train
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.recipe import Data, Optimizer, Supervised

FORMATS = ("float32", "dynamic-int8", "int8")  # float32 has the accuracy of Keras


def classifiers(size, deit):
    """Yields names, classifiers and learning rates; weights are random, but for those of the file `deit`."""
    yield "DeiT-Ti", keras_vit.ViT("Ti/16", image_size=size, gelu="erf", preprocessing="imagenet"), 5e-4
    efficientnet = keras.applications.EfficientNetB0(include_top=False, weights=None, input_shape=(None, None, 3))
    for layer in efficientnet.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9  # 0.99 is for long trainings
    yield "EfficientNet-B0", keras_vit.ImageClassifier(efficientnet, image_size=size, preprocessing="pixels"), 5e-4
    from keras_hub.models import SwinTransformerBackbone

    window = 7 if size == 224 else size // 32  # KerasHub's windows must divide all maps
    swin = SwinTransformerBackbone((size, size, 3), 96, (2, 2, 6, 2), (3, 6, 12, 24), window)
    yield "Swin-Ti", keras_vit.ImageClassifier(swin, preprocessing="imagenet"), 5e-4
    if deit:
        yield "DeiT-Ti from ImageNet", keras_vit.load(deit, image_size=size, preprocessing="imagenet"), 1e-4


def trained(model, rate: float, dataset: str, size: int, steps: int):
    """The model after the recipe of all, with a learning rate and a scale of the pixels of its own."""
    scaled = {"mean": model.preprocessing.mean, "std": model.preprocessing.std}
    data = Data(dataset, validation_split=None, image_size=size, batch_size=16, crop="pad", **scaled)
    optimizer = Optimizer("adamw", rate, warmup_steps=steps // 10, weight_decay=0.05)
    return train(Supervised(data=data, optimizer=optimizer, total_steps=steps), start=model)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--deit", help="file of DeiT-Ti's weights")
    for name, number in {"size": 64, "steps": 200, "test-images": 1000}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    options = parser.parse_args()
    dataset, prepare = open_dataset(Data(f"folder:{options.images}")), keras_vit.Preprocessing(options.size)

    def read(split, count):
        """Images of all classes, (count, size, size, 3) in [0, 255], and their labels."""
        indices = np.linspace(0, dataset.splits[split] - 1, count, dtype=int)
        (images, labels), *_ = decoded_images(dataset, split, count, indices=indices)
        return np.asarray(prepare.pixels(images)), labels

    (images, labels), (calibration, _) = read("test", options.test_images), read("train", 100)
    rows, files = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, model, rate in classifiers(options.size, options.deit):
            model = model.with_head(len(dataset.class_names))
            model = trained(model, rate, dataset.name, options.size, options.steps) if options.steps else model
            for kind, file in write_tflite(model, Path(folder) / name, FORMATS, calibration).items():
                right = int((run_tflite(file, images)[0].argmax(-1) == labels).sum())
                low, high = binomtest(right, len(labels)).proportion_ci(method="wilson")
                rows.append(f"| {name} | {kind} | {right / len(labels):.1%} ({low:.1%} to {high:.1%}) ")
                files.append(file)
                print(rows[-1], flush=True)
        print("\n| network | file | top-1 | MB | ms |\n|---|---|---|---|---|")
        for row, result in zip(rows, compare(files, num_runs=100)):
            print(f"{row}| {result.size_bytes / 1e6:.1f} | {result.median_ms:.2f} |")


if __name__ == "__main__":
    main()
