"""The demo's report: one HTML file with its images inside, which opens offline."""

import html
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from keras_vit_cli.demo.command import STARTS
from keras_vit_cli.html import figure_image, package_versions
from keras_vit.images import denormalize
from keras_vit.inspect import attention_rollout, figures, position_similarity
from keras_vit.recipes.data import evaluation_batches, open_dataset
from keras_vit.recipes.masked_patch.reconstruction import reconstruct

IMAGES = 10


def write_report(path: Path, results: dict):
    """Writes the report of `run_demo`'s results."""
    metrics, model = results["metrics"], results["model"]
    accuracy = metrics["test_top1"]
    few, labels = _few_labels(accuracy), results["labels"]
    predicted = model.predict(results["images"], verbose=0).argmax(-1)
    confusion = np.zeros((len(results["class_names"]),) * 2, int)
    np.add.at(confusion, (labels, predicted), 1)
    groups = {
        f"{few} labels a class": [accuracy[f"{start}_{few}"] * 100 for start in STARTS],
        "all labels": [accuracy[f"{start}_all"] * 100 for start in STARTS],
    }
    histories = results["histories"]
    steps = results["recipes"]["pretraining"].total_steps
    loss = histories["pretraining"]["loss"]
    parts = {
        "summary": html.escape(_summary(results)),
        "warning": _warning(metrics["fast"]),
        "cards": _cards(accuracy, few, metrics),
        "reconstruction": figure_image(_reconstruction_figure(results), "Original, masked and predicted images"),
        "comparison": figure_image(
            figures.bars(groups, list(STARTS.values()), "test accuracy, %"), "Test accuracies as bars"
        ),
        "finetuning": figure_image(_finetuning_figure(histories, few, results), "Validation accuracy over fine-tuning"),
        "pretraining": figure_image(
            figures.curves({"loss": (_updates(steps, loss), loss, ("-", figures.ACCENT))}, "cross-entropy"),
            "Loss over pre-training",
        ),
        "confusion": figure_image(figures.confusion_matrix(confusion, results["class_names"]), "Confusion matrix"),
        "rollout": figure_image(_rollout_figure(results, predicted), "Attention rollout over test images"),
        "positions": figure_image(
            figures.similarity_maps(position_similarity(model)), "Similarity of position embeddings"
        ),
        "exports": _exports_table(metrics["exports"]),
        "recipes": "".join(_recipe(name, recipe) for name, recipe in results["recipes"].items()),
        "versions": html.escape(package_versions("keras_vit", "keras", "tensorflow", "ai-edge-litert")),
        "test_images": str(metrics["test_images"]),
        "grid_before": "{} x {}".format(*results["masked_model"].vit.grid),
        "grid_after": "{} x {}".format(*model.grid),
        "threads": "2",
    }
    template = resources.files("keras_vit_cli.demo").joinpath("report.html").read_text()
    path.write_text(Template(template).substitute(parts))


def _few_labels(accuracy):
    return next(int(name.rpartition("_")[2]) for name in accuracy if not name.endswith("_all"))


def _summary(results):
    metrics, recipes = results["metrics"], results["recipes"]
    pretraining, finetuning = recipes["pretraining"], recipes["finetuning"]
    small, large = (f"{recipe.data.image_size} x {recipe.data.image_size}" for recipe in (pretraining, finetuning))
    return (
        f"A ViT of {metrics['parameters']:,} weights learned from scikit-learn's digits with masked patches "
        f"at {small} pixels ({pretraining.total_steps:,} updates), was fine-tuned at {large} pixels "
        f"({finetuning.total_steps:,} updates) and exported. Seed {metrics['seed']}."
    )


def _warning(fast):
    text = "This was a smoke run (--fast): far too few updates to learn anything. Its figures mean nothing."
    return f'<section class="warning">{text}</section>' if fast else ""


def _cards(accuracy, few, metrics):
    int8 = next(row for row in metrics["exports"] if row["name"] == "TFLite int8")
    values = {
        f"test accuracy, all labels, pre-trained (from scratch {accuracy['scratch_all']:.1%})": accuracy[
            "pretrained_all"
        ],
        f"with {few} labels a class, pre-trained (from scratch {accuracy[f'scratch_{few}']:.1%})": accuracy[
            f"pretrained_{few}"
        ],
        f"of the full-int8 TFLite file, {int8['size_bytes'] / 1e3:.0f} kB": int8["accuracy"],
    }
    return "".join(f'<div class="card"><b>{value:.1%}</b>{html.escape(text)}</div>' for text, value in values.items())


def _updates(total, values):
    return (np.arange(len(values)) + 1) * total / len(values)


def _finetuning_figure(histories, few, results):
    total = results["recipes"]["finetuning"].total_steps
    series = {}
    for labels, style in ((str(few), "--"), ("all", "-")):
        for start, color in zip(STARTS, (figures.MUTED, figures.ACCENT)):
            values = histories[f"{start}_{labels}"]["val_top1"]
            series[f"{STARTS[start]}, {labels} labels"] = (_updates(total, values), values, (style, color))
    return figures.curves(series, "validation accuracy, %", percent=True)


def _reconstruction_figure(results):
    recipe = results["recipes"]["pretraining"]
    batches = evaluation_batches(recipe.data, open_dataset(recipe.data), recipe.data.test_split)
    pixels = denormalize(next(iter(batches))[0][:IMAGES])
    drawn = reconstruct(results["masked_model"], pixels, recipe, seed=results["metrics"]["seed"])
    seen = np.where(drawn.masked[..., None], figures.HIDDEN, drawn.inputs)
    rows = [np.asarray(pixels), seen, drawn.predicted, drawn.targets]
    titles = ["image", "what the model\nis given", "mean colors,\npredicted", "mean colors,\ntrue"]
    return figures.image_grid([list(row) for row in rows], titles)


def _rollout_figure(results, predicted):
    # One image of each class, in order, as far as there is room.
    chosen = [int(np.flatnonzero(results["labels"] == i)[0]) for i in np.unique(results["labels"])[:IMAGES]]
    images = results["images"][chosen]
    pixels = np.asarray(denormalize(images))
    heat = attention_rollout(results["model"], images)
    overlays = [figures.overlay(image, share) for image, share in zip(pixels, heat)]
    names = [f"says {results['class_names'][predicted[i]]}" for i in chosen]
    return figures.image_grid([list(pixels), overlays], ["image", "attention"], names)


def _exports_table(rows):
    head = ("model", "accuracy", "agreement", "max difference", "mean difference", "size, kB", "median, ms")
    lines = [
        (
            row["name"],
            f"{row['accuracy']:.1%}",
            f"{row['agreement']:.1%}",
            f"{row['max_difference']:.2g}",
            f"{row['mean_difference']:.2g}",
            f"{row['size_bytes'] / 1e3:,.0f}",
            f"{row['median_ms']:.2f}",
        )
        for row in rows
    ]
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + f"</tr>{body}</table>"


def _recipe(name, recipe):
    fields = html.escape(json.dumps(asdict(recipe), indent=2))
    return f"<details><summary>Recipe of {name}, every field</summary><pre>{fields}</pre></details>"
