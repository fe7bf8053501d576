"""The report of `keras-vit demo`: one HTML file with its images inside, which works offline."""

import html
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import numpy as np

import keras_vit
from keras_vit.images import denormalize
from keras_vit.images.rgb import as_rgb
from keras_vit.inspect import figures
from keras_vit.recipes.data import evaluation_arrays, open_dataset
from keras_vit_cli.commands.inspect.model import InspectedModel
from keras_vit_cli.commands.inspect.sections import positions, reconstructions, rollout
from keras_vit_cli.evidence import evidence
from keras_vit_cli.image_files import ImageBatch
from keras_vit_cli.page import (
    Section,
    cards,
    details,
    figure_image,
    image_rows,
    message,
    package_versions,
    page,
    pair,
    section,
    table,
)

STARTS = {"scratch": "from scratch", "pretrained": "pre-trained"}
NUM_IMAGES = 6
PACKAGED = "cifar10/R6_Ti_4"
SMOKE_TEST = "This was a smoke test (--fast): too few steps to learn anything. The numbers are meaningless."
PAPER = 'Paper: "An Image is Worth 16x16 Words" (arXiv 2010.11929).'


def write_report(path: Path, results: dict):
    """Writes the report of the results of `run_demo`."""
    metrics, masked_model, model = results["metrics"], results["masked_model"], results["model"]
    pretraining, finetuning = results["recipes"]["pretraining"], results["recipes"]["finetuning"]
    parts = [
        *([message(SMOKE_TEST)] if metrics["fast"] else []),
        cards(_numbers(metrics)),
        section(*reconstructions(InspectedModel(masked_model.vit, masked_model, pretraining), _shown(pretraining))),
        pair(*(section(*curve) for curve in (_pretraining_curve(results), _finetuning_curves(results)))),
        *(section(*each) for each in (rollout(model, _shown(finetuning)), positions(model))),
        section(*_exports(metrics)),
        section(*results["photographs"]),
        section("Recipes", "", "".join(_recipe(name, recipe) for name, recipe in results["recipes"].items())),
    ]
    versions = package_versions("vit-for-keras", "keras", "tensorflow", "ai-edge-litert")
    title = "A Vision Transformer, from unlabeled images to TFLite"
    path.write_text(page(title, _summary(results), "\n".join(parts), f"{versions}. {PAPER}"))


def classify_photographs() -> Section:
    """Prints the classes of the photographs by the model of the package; a section of them with the evidence."""
    model, photographs = keras_vit.load(PACKAGED), read_photographs()
    rows = []
    for (name, image), best in zip(photographs.items(), model.classify(list(photographs.values()), top=3)):
        answer = ", ".join(f"{label} {probability:.1%}" for label, probability in best)
        print(f"{name:14}{answer}")
        rows.append([(image, answer), (evidence(model, image), f"evidence for {best[0][0]}")])
    text = (
        f'keras_vit.load("{PACKAGED}"), the small hybrid in the package, was trained from random weights on CIFAR-10 '
        "by the recipe cifar10. It knows ten classes and sees 32 x 32 pixels. In orange: the patches that speak for "
        "the most likely class."
    )
    return "A trained classifier on photographs", text, image_rows(rows)


def read_photographs() -> dict[str, np.ndarray]:
    """The photographs of the package, (H, W, 3) uint8, by file name."""
    with resources.as_file(resources.files("keras_vit_cli.commands.demo").joinpath("images")) as folder:
        return {file.name: as_rgb(file) for file in sorted(folder.glob("*.jpg"))}


def _shown(recipe) -> ImageBatch:
    """The first test image of each class, as the model of a recipe sees it."""
    dataset = open_dataset(recipe.data)
    images, labels = evaluation_arrays(recipe.data, dataset, recipe.data.test_split)
    rows = np.unique(labels, return_index=True)[1][:NUM_IMAGES]
    names = [f"a {dataset.class_names[label]}" for label in labels[rows]]
    return ImageBatch(names, images[rows], np.rint(denormalize(images[rows])).astype("uint8"))


def _few_labels(test_top1) -> int:
    return next(int(name.rpartition("_")[2]) for name in test_top1 if not name.endswith("_all"))


def _summary(results) -> str:
    metrics, recipes = results["metrics"], results["recipes"]
    pretraining, finetuning = recipes["pretraining"], recipes["finetuning"]
    small, large = ("{} x {}".format(*recipe.data.input_size) for recipe in (pretraining, finetuning))
    return (
        f"A ViT with {metrics['num_parameters']:,} parameters, pre-trained on scikit-learn's digits by masked-patch "
        f"prediction at {small} pixels ({pretraining.total_steps:,} steps), fine-tuned at {large} pixels "
        f"({finetuning.total_steps:,} steps) and exported. Seed {metrics['seed']}."
    )


def _numbers(metrics) -> dict[str, str]:
    top1 = metrics["test_top1"]
    few = _few_labels(top1)
    int8 = next(row for row in metrics["exports"] if row["name"] == "TFLite int8")
    values = {
        f"test accuracy, all labels, pre-trained (from scratch: {top1['scratch_all']:.1%})": top1["pretrained_all"],
        f"test accuracy, {few} labels per class, pre-trained (from scratch: {top1[f'scratch_{few}']:.1%})": top1[
            f"pretrained_{few}"
        ],
        f"test accuracy of the int8 TFLite file, {int8['size_bytes'] / 1e3:.0f} kB": int8["top1"],
    }
    return {text: f"{value:.1%}" for text, value in values.items()}


def _steps(total_steps, values):
    """The step at which each of the values was measured."""
    return (np.arange(len(values)) + 1) * total_steps / len(values)


def _pretraining_curve(results) -> Section:
    loss = results["histories"]["pretraining"]["loss"]
    steps = _steps(results["recipes"]["pretraining"].total_steps, loss)
    figure = figures.curves({"loss": (steps, loss, ("-", figures.ACCENT))}, "cross-entropy")
    text = "Cross-entropy over 512 colors of the corrupted patches. Uniform predictions would have 6.24."
    return "Pre-training", text, figure_image(figure, "Loss during pre-training")


def _finetuning_curves(results) -> Section:
    few = _few_labels(results["metrics"]["test_top1"])
    total_steps = results["recipes"]["finetuning"].total_steps
    series = {}
    for labels, amount, style in ((few, f"{few} labels per class", "--"), ("all", "all labels", "-")):
        for start, color in zip(STARTS, (figures.MUTED, figures.ACCENT)):
            values = results["histories"][f"{start}_{labels}"]["val_top1"]
            series[f"{STARTS[start]}, {amount}"] = (_steps(total_steps, values), values, (style, color))
    figure = figures.curves(series, "validation accuracy, %", percent=True)
    text = "Accuracy on the validation images by training step."
    return "Fine-tuning", text, figure_image(figure, "Validation accuracy during fine-tuning")


def _exports(metrics) -> Section:
    head = ("model", "top-1", "agreement", "max difference", "mean difference", "size, kB", "median latency, ms")
    lines = [
        (
            html.escape(row["name"]),
            f"{row['top1']:.1%}",
            f"{row['agreement']:.1%}",
            f"{row['max_difference']:.2g}",
            f"{row['mean_difference']:.2g}",
            f"{row['size_bytes'] / 1e3:,.0f}",
            f"{row['median_ms']:.2f}",
        )
        for row in metrics["exports"]
    ]
    text = (
        f"Each runs the {metrics['num_test_images']} test images one at a time, TFLite with 2 threads. Agreement is "
        "the fraction of images with the same predicted class as Keras; differences are between probabilities."
    )
    return "Exported models", text, table(head, lines, "Exported models")


def _recipe(name, recipe) -> str:
    title = {"pretraining": "Pre-training", "finetuning": "Fine-tuning"}[name]
    return details(title, f"<pre>{html.escape(json.dumps(asdict(recipe), indent=2))}</pre>")
