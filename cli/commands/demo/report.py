"""The report of `keras-vit demo`: one HTML file with its images inside, which works offline."""

import html
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
from sklearn.metrics import confusion_matrix

import keras_vit
from keras_vit.images import denormalize
from keras_vit.images.rgb import as_rgb
from keras_vit.inspect import attention_rollout, figures, position_similarity
from keras_vit.recipes.data import evaluation_batches, open_dataset
from keras_vit.recipes.pretraining.masked_patch import reconstruct
from keras_vit_cli.commands.report.sections import confusion_table
from keras_vit_cli.evidence import evidence
from keras_vit_cli.page import cards, figure_image, package_versions, page, table

STARTS = {"scratch": "from scratch", "pretrained": "pre-trained"}
NUM_IMAGES = 10
PACKAGED = "cifar10/R6_Ti_4"
SOURCES = (
    'Paper: "An Image is Worth 16x16 Words" (arXiv 2010.11929); masked patches, appendix B.1.2; rollout, appendix D.8; '
    "position similarity, figure 7."
)


def write_report(path: Path, results: dict):
    """Writes the report of the results of `run_demo`."""
    metrics, model, masked_model = results["metrics"], results["model"], results["masked_model"]
    predicted = model.predict(results["images"], verbose=0).argmax(-1)
    values = {
        "warning": _warning(metrics["fast"]),
        "cards": _cards(metrics),
        "reconstruction": figure_image(_reconstruction_figure(results), "Images, corrupted, predicted and target"),
        "comparison": figure_image(_comparison_figure(metrics["test_top1"]), "Test accuracy as a bar chart"),
        "finetuning": figure_image(_finetuning_figure(results), "Validation accuracy during fine-tuning"),
        "pretraining": figure_image(_pretraining_figure(results), "Loss during pre-training"),
        "confusion": _confusion_table(results, predicted),
        "rollout": figure_image(_rollout_figure(results, predicted), "Attention rollout on test images"),
        "positions": figure_image(
            figures.similarity_maps(position_similarity(model)), "Similarity of position embeddings"
        ),
        "exports": _exports_table(metrics["exports"]),
        "photographs": figure_image(results["photographs"], "Photographs, their classes and the evidence"),
        "recipes": "".join(_recipe(name, recipe) for name, recipe in results["recipes"].items()),
        "num_test_images": str(metrics["num_test_images"]),
        "pretraining_grid": "{} x {}".format(*masked_model.vit.grid),
        "finetuning_grid": "{} x {}".format(*model.grid),
    }
    template = resources.files("keras_vit_cli.commands.demo").joinpath("report.html").read_text()
    versions = package_versions("vit-for-keras", "keras", "tensorflow", "ai-edge-litert")
    title = "A Vision Transformer, from unlabeled images to TFLite"
    path.write_text(page(title, _summary(results), Template(template).substitute(values), f"{versions}. {SOURCES}"))


def classify_photographs():
    """Prints the classes of the photographs by the model of the package; a figure of them with the evidence."""
    model, photographs = keras_vit.load(PACKAGED), read_photographs()
    predictions = model.classify(list(photographs.values()), top=3)
    for name, best in zip(photographs, predictions):
        print(f"{name:14}" + ", ".join(f"{label} {probability:.1%}" for label, probability in best))
    rows = [list(photographs.values()), [evidence(model, image) for image in photographs.values()]]
    titles = ["\n".join(f"{name} {probability:.1%}" for name, probability in best) for best in predictions]
    return figures.image_grid(rows, ["photograph", "evidence for\nthe first"], titles, size=2)


def read_photographs() -> dict[str, np.ndarray]:
    """The photographs of the package, (H, W, 3) uint8, by file name."""
    with resources.as_file(resources.files("keras_vit_cli.commands.demo").joinpath("images")) as folder:
        return {file.name: as_rgb(file) for file in sorted(folder.glob("*.jpg"))}


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


def _warning(fast) -> str:
    text = "This was a smoke test (--fast): too few steps to learn anything. The numbers are meaningless."
    return f'<p class="message">{text}</p>' if fast else ""


def _cards(metrics) -> str:
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
    return cards({text: f"{value:.1%}" for text, value in values.items()})


def _steps(total_steps, values):
    """The step at which each of the values was measured."""
    return (np.arange(len(values)) + 1) * total_steps / len(values)


def _reconstruction_figure(results):
    recipe = results["recipes"]["pretraining"]
    batches = evaluation_batches(recipe.data, open_dataset(recipe.data), recipe.data.test_split)
    pixels = denormalize(next(iter(batches))[0][:NUM_IMAGES])
    result = reconstruct(results["masked_model"], pixels, recipe, seed=results["metrics"]["seed"])
    inputs = np.where(result.masked[..., None], figures.MASK_COLOR, result.inputs)
    rows = [np.asarray(pixels), inputs, result.predicted, result.targets]
    titles = ["image", "corrupted", "mean colors,\npredicted", "mean colors,\ntarget"]
    return figures.image_grid([list(row) for row in rows], titles)


def _comparison_figure(test_top1):
    few = _few_labels(test_top1)
    groups = {
        f"{few} labels per class": [test_top1[f"{start}_{few}"] * 100 for start in STARTS],
        "all labels": [test_top1[f"{start}_all"] * 100 for start in STARTS],
    }
    return figures.bars(groups, list(STARTS.values()), "test accuracy, %")


def _finetuning_figure(results):
    few = _few_labels(results["metrics"]["test_top1"])
    total_steps = results["recipes"]["finetuning"].total_steps
    series = {}
    for labels, amount, style in ((few, f"{few} labels per class", "--"), ("all", "all labels", "-")):
        for start, color in zip(STARTS, (figures.MUTED, figures.ACCENT)):
            values = results["histories"][f"{start}_{labels}"]["val_top1"]
            series[f"{STARTS[start]}, {amount}"] = (_steps(total_steps, values), values, (style, color))
    return figures.curves(series, "validation accuracy, %", percent=True)


def _pretraining_figure(results):
    loss = results["histories"]["pretraining"]["loss"]
    steps = _steps(results["recipes"]["pretraining"].total_steps, loss)
    return figures.curves({"loss": (steps, loss, ("-", figures.ACCENT))}, "cross-entropy")


def _confusion_table(results, predicted):
    matrix = confusion_matrix(results["labels"], predicted, labels=range(len(results["class_names"])))
    return confusion_table(matrix, results["class_names"])


def _rollout_figure(results, predicted):
    labels, names = results["labels"], results["class_names"]
    first_of_class = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)[:NUM_IMAGES]]
    images = results["images"][first_of_class]
    pixels = np.asarray(denormalize(images))
    overlays = [figures.overlay(*pair) for pair in zip(pixels, attention_rollout(results["model"], images))]
    titles = [f"predicted: {names[predicted[i]]}" for i in first_of_class]
    return figures.image_grid([list(pixels), overlays], ["image", "attention"], titles)


def _exports_table(rows) -> str:
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
        for row in rows
    ]
    return table(head, lines, "Exported models")


def _recipe(name, recipe) -> str:
    fields = html.escape(json.dumps(asdict(recipe), indent=2))
    title = {"pretraining": "Pre-training", "finetuning": "Fine-tuning"}[name]
    return f"<details><summary>{title}</summary><pre>{fields}</pre></details>"
