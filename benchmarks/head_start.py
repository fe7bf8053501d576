"""Top-1 accuracy of ways to fine-tune on few photographs: a head of zeros, or one fitted to the frozen features first.

Requires vit-for-keras[tensorflow,recipes]
Command: python benchmarks/head_start.py --weights deit_tiny_patch16_224.safetensors --train cifar10_train.zip \
    --test cifar10_test.zip --results head_start.csv

The zip files have <split>/<class>/<image>. Ways of `keras-vit finetune`, with its settings, for the same images:

- zeros/full: as it is, from a head of zeros; zeros/half: in half of the steps.
- zeros/quarter, zeros/head: the last quarter of the blocks, or the head alone, as where an hour does not suffice;
  start/quarter: that quarter from the fitted head.
- head: logistic regression on the frozen features alone (scikit-learn, C = 0.1).
- start/full, start/half: from that head (arXiv 2202.10054), in all or half of the steps.
- start/half/2: with twice the learning rate. Other draws than those of the comparison choose between rates.

Each draw takes other images. Each result is appended to the file of results, and those in it are not computed again.
Then a table of paired differences from zeros/full with 95 % t intervals over the draws, in points of top-1.
"""

import argparse
import csv
import os
import statistics
import tempfile
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from scipy.stats import t
from sklearn.linear_model import LogisticRegression

import keras_vit
from keras_vit.recipes.configs.finetune import SMALL
from keras_vit.recipes.configs.small_folder import HEAD_RATE, Machine, fit_to_folder
from keras_vit.recipes.data import count_examples, decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.fit import train
from keras_vit.recipes.training.model import adapt_model

THREE, DRAWS, TEST_IMAGES, DEPTH = ("cat", "deer", "dog"), 5, 600, 12
WAYS = ("zeros/full", "zeros/half", "head", "start/full", "start/half")
LARGE = ("zeros/full", "head", "start/half")
PARTS = ("zeros/quarter", "start/quarter", "zeros/head")
RATES = tuple(f"{way}/{factor}" for way in ("zeros/full", "start/half") for factor in (0.5, 2))
# (classes, images of each, side of the images, ways, draws), the cheapest and most informative first.
CONFIGURATIONS = (
    (3, 10, 224, WAYS, range(DRAWS)),
    (3, 48, 112, WAYS, range(DRAWS)),
    (10, 10, 224, LARGE, range(DRAWS)),
    (3, 48, 224, LARGE, range(DRAWS)),
    (10, 48, 224, (*LARGE, *PARTS), range(DRAWS)),
    (3, 200, 224, LARGE, range(DRAWS)),
    (10, 200, 224, (*LARGE, *PARTS), range(DRAWS)),
    (3, 48, 224, ("zeros/full", "start/half", *RATES), range(DRAWS, DRAWS + 2)),
)
ANY_MACHINE = Machine(accelerator=False, forward_seconds=0.01, decode_seconds=0.001)  # trains all blocks in float32
FIELDS = ("classes", "images", "side", "draw", "way", "top1", "cpu_seconds")


def draw_images(folder, archives, classes, count, draw):
    """Writes folder/<split>/<class>/<image> of drawn images."""
    for split, (archive, per_class) in {"train": (archives[0], count), "test": (archives[1], None)}.items():
        with zipfile.ZipFile(archive) as images:
            files = sorted(name for name in images.namelist() if name.endswith((".jpg", ".png")))
            names = sorted({name.split("/")[-2] for name in files})
            names = [name for name in names if classes == len(names) or name in THREE]
            for name in names:
                of_class = [file for file in files if file.split("/")[-2] == name]
                order = np.random.default_rng([draw, names.index(name)]).permutation(len(of_class))
                (folder / split / name).mkdir(parents=True)
                for number in order[: per_class or TEST_IMAGES // classes]:
                    file = of_class[number]
                    (folder / split / name / Path(file).name).write_bytes(images.read(file))


def features(model, dataset, split):
    """(n, D) float32 and (n,) int64 labels."""
    batches = decoded_images(dataset, split, batch_size=32)
    parts = [(model.features(model.preprocess(images)), labels) for images, labels in batches]
    return [np.concatenate([np.asarray(part) for part in column]) for column in zip(*parts)]


def recipe_of(dataset, model, side, draw):
    """The recipe of `keras-vit finetune`."""
    data = replace(SMALL.data, dataset=dataset.name)
    images, depth = count_examples(dataset, "train"), model.config.depth
    recipe = fit_to_folder(replace(SMALL, data=data), images, model.preprocessing, side, depth, ANY_MACHINE)
    return replace(recipe, run=replace(recipe.run, seed=draw))


def adjusted(recipe, way):
    """The recipe with the steps and the learning rate of a way."""
    _, part, factor = (*way.split("/"), 1)[:3]
    optimizer, divisor = recipe.optimizer, 2 if part == "half" else 1
    if part == "head":
        factor, recipe = HEAD_RATE, replace(recipe, trainable_blocks=0)
    elif part == "quarter":
        recipe = replace(recipe, trainable_blocks=DEPTH // 4)
    warmup_steps, rate = max(1, optimizer.warmup_steps // divisor), optimizer.learning_rate * float(factor)
    optimizer = replace(optimizer, warmup_steps=warmup_steps, learning_rate=rate)
    return replace(recipe, total_steps=recipe.total_steps // divisor, optimizer=optimizer)


def with_head(model, recipe, fitted):
    """The model with the head of a logistic regression."""
    started = adapt_model(model, recipe, len(fitted.classes_))
    kernel, bias = fitted.coef_.T, fitted.intercept_
    started.head.set_weights([kernel, bias])
    return started


def measure(way, model, dataset, recipe):
    """Top-1 accuracy in [0, 1] of a way, and its seconds of CPU time without those of the evaluation."""
    begin, start = sum(os.times()[:2]), model
    if not way.startswith("zeros"):
        fitted = LogisticRegression(C=0.1, max_iter=10_000).fit(*features(model, dataset, "train"))
        start, recipe = with_head(model, recipe, fitted), replace(recipe, keep_head=True)
    if way != "head":
        start, _ = train(adjusted(recipe, way), start)
    seconds = sum(os.times()[:2]) - begin
    return evaluate_classifier(start, dataset, "test").summary["top1"], seconds


def run_all(weights, archives, results):
    """Appends the results that the file does not have yet."""
    done = {tuple(row[field] for field in FIELDS[:5]) for row in read(results)}
    for classes, count, side, ways, draws in CONFIGURATIONS:
        for draw in draws:
            missing = [way for way in ways if (str(classes), str(count), str(side), str(draw), way) not in done]
            if not missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                draw_images(Path(folder), archives, classes, count, draw)
                dataset = open_dataset(replace(SMALL.data, dataset=f"folder:{folder}"))
                for way in missing:
                    keras.backend.clear_session()
                    model = keras_vit.load(weights, num_classes=0)
                    model = model if model.image_size == (side, side) else model.resized(side)
                    top1, seconds = measure(way, model, dataset, recipe_of(dataset, model, side, draw))
                    append(results, (classes, count, side, draw, way, f"{top1:.5f}", f"{seconds:.1f}"))


def read(results):
    if not results.exists():
        return []
    with results.open(newline="") as file:
        return list(csv.DictReader(file))


def append(results, row):
    is_new = not results.exists()
    with results.open("a", newline="") as file:
        csv.writer(file).writerows([FIELDS, row] if is_new else [row])
    print(*row, flush=True)


def print_table(rows):
    """The mean of each way, and its difference from zeros/full over the draws that have both."""
    print("| classes x images, pixels | way | draws | top-1, % | points beside zeros/full, 95 % | CPU seconds |")
    print("|---|---|---|---|---|---|")
    for classes, count, side, ways, draws in CONFIGURATIONS:
        of_way = {
            way: {
                row["draw"]: (100 * float(row["top1"]), float(row["cpu_seconds"]))
                for row in rows
                if [row[field] for field in ("classes", "images", "side", "way")]
                == [str(classes), str(count), str(side), way]
                and int(row["draw"]) in draws
            }
            for way in ways
        }
        for way in filter(of_way.get, ways):
            values = of_way[way]
            top1, seconds = (statistics.mean(column) for column in zip(*values.values()))
            both = sorted(values.keys() & of_way["zeros/full"].keys())
            differences = [values[draw][0] - of_way["zeros/full"][draw][0] for draw in both]
            shown = "" if way == "zeros/full" else difference_text(differences)
            print(f"| {classes} x {count}, {side} | {way} | {len(values)} | {top1:.1f} | {shown} | {seconds:.0f} |")


def difference_text(differences):
    if len(differences) < 2:
        return ""
    mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    half = t.ppf(0.975, len(differences) - 1) * error
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True, help="of a VisionTransformer, as for keras_vit.load")
    parser.add_argument("--train", required=True, type=Path, help="zip file of images to train on")
    parser.add_argument("--test", required=True, type=Path, help="zip file of other images, to evaluate on")
    parser.add_argument("--results", required=True, type=Path, help="CSV file, which is continued")
    parser.add_argument("--table", action="store_true", help="print the table of the results that there are")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not arguments.table:
        run_all(arguments.weights, (arguments.train, arguments.test), arguments.results)
    print_table(read(arguments.results))
