"""Transfer of a trained network to CIFAR-10 or another folder of images: frozen features, then fine-tuning.

Command: python benchmarks/transfer.py --weights deit_tiny_patch16_224.safetensors --images FOLDER
         (FOLDER/train/<class>/<image>, FOLDER/test/...)

Nearest neighbors, few-shot ridge regression, logistic regression, and fine-tuning of all weights at --image-size, whose
learning rate is chosen on the held-out last tenth of the training images. Finished runs in --runs are not repeated.
The default mean and standard deviation are ImageNet's, for files that do not hold them.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

import keras_vit
from keras_vit.recipes.data import class_names, open_dataset
from keras_vit.recipes.evaluation.features import extract_features
from keras_vit.recipes.evaluation.few_shot import FewShot, few_shot
from keras_vit.recipes.evaluation.probe import knn, linear_probe
from keras_vit.recipes.learning_rate_sweep import Sweep, sweep
from keras_vit.recipes.recipe import Data, Optimizer, Run, Supervised

SHOTS = (1, 5, 10, 25, 100)


@dataclass
class Transfer:
    weights: str
    images: Path
    image_size: int = 128
    steps: int = 780  # two epochs of CIFAR-10 at batch size 128
    learning_rates: tuple[float, ...] = (3e-4, 1e-3)
    precision: Literal["float32", "mixed_bfloat16"] = "mixed_bfloat16"  # float32 on CPUs without AMX and AVX512_BF16
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    runs: Path = Path("runs/transfer")
    only: Literal["all", "features", "finetuning"] = "all"


def identity(options: Transfer):
    """A name that other weights, image sizes or scalings do not have."""
    contents = hashlib.sha256(Path(options.weights).read_bytes())
    contents.update(repr((options.mean, options.std)).encode())
    return f"{options.image_size}-{contents.hexdigest()[:8]}"


def start(options: Transfer):
    """The network at the image size, with the whole image as its input, as a .keras file."""
    file = options.runs / f"start-{identity(options)}.keras"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        size, scaling = options.image_size, {"mean": options.mean, "std": options.std}
        preprocessing = keras_vit.Preprocessing(size, resize="squash", interpolation="bicubic", **scaling)
        model = keras_vit.load(options.weights, preprocessing=preprocessing, image_size=size)
        model.save(file)
    return file


def frozen_features(options: Transfer):
    model, data = keras_vit.load(start(options)), Data(dataset=f"folder:{options.images}")
    dataset = open_dataset(data)
    train, labels = extract_features(model, dataset, "train", batch_size=250, verbose=True)
    test, truth = extract_features(model, dataset, "test", batch_size=250, verbose=True)
    print(f"{len(train):,} training and {len(test):,} test images, {len(class_names(dataset))} classes")
    print(f"| method, {options.image_size} pixels | top-1, % |\n|---|---|")
    for neighbors in (1, 10, 20):
        print(f"| {neighbors} nearest neighbors | {100 * np.mean(knn(train, labels, test, neighbors) == truth):.2f} |")
    predicted, penalty = linear_probe(train, labels, test)
    print(f"| logistic regression, C = {penalty:g} | {100 * np.mean(predicted == truth):.2f} |")
    plan = FewShot(data, shots=SHOTS, batch_size=250, resizing="weights")
    for shots, values in few_shot(model, plan).items():
        deviation = 100 * np.std(values, ddof=1)
        print(f"| ridge regression, {shots} per class | {100 * np.mean(values):.2f} ± {deviation:.2f} |", flush=True)


def finetuning(options: Transfer):
    data = Data(
        dataset=f"folder:{options.images}",
        validation_split=None,
        test_split="test",
        image_size=options.image_size,
        batch_size=128,
        min_crop_area=0.5,
        mean=options.mean,
        std=options.std,
        cache=True,
    )
    optimizer = Optimizer("adamw", warmup_steps=options.steps // 10, weight_decay=0.05, layer_decay=0.75)
    folder = str(options.runs / f"finetuning-{identity(options)}")
    recipe = Supervised(
        data=data,
        weights=str(start(options)),
        optimizer=optimizer,
        run=Run(precision=options.precision, steps_per_execution=10, folder=folder, resume=True, checkpoint_steps=130),
        label_smoothing=0.1,
        total_steps=options.steps,
    )
    recipe = replace(recipe, run=replace(recipe.run, epoch_steps=130))
    plan = Sweep(recipe, options.learning_rates, "train[:90%]", "train[90%:]", seeds=(0,))
    result = sweep(plan)
    print(f"| fine-tuned, {options.steps:,} steps, rate {result['learning_rate']:g} | {100 * result['mean']:.2f} |")
    print("Held-out top-1 by learning rate:", result["held_out"])


def main(options: Transfer):
    if options.only in ("all", "features"):
        frozen_features(options)
    if options.only in ("all", "finetuning"):
        finetuning(options)


if __name__ == "__main__":
    main(tyro.cli(Transfer))
