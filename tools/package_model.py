"""Puts the model of a finished run into the package: float16 weights, class names and model card in keras_vit/trained.

Command: python tools/package_model.py runs/cifar10 cifar10 cifar10/R6_Ti_4 --dataset folder:IMAGES
Metrics in the card are computed from the file in the package, on all images of the recipe's test set.
"""

import hashlib
import io
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import h5py
import tyro

import keras_vit
from keras_vit.model_card import model_card
from keras_vit.models.load_keras import WEIGHTS
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.data.model_classes import check_class_count
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.classification_metrics import BINS
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.file import read_recipe
from keras_vit.recipes.runs.folder import RECIPE
from keras_vit.trained import FOLDER
from keras_vit.weights import save


@dataclass
class PackageModel:
    """
    Args:
        run: Folder of the run.
        recipe: Name of its recipe.
        name: Name for `keras_vit.load`.
        dataset: Test images, as `--data.dataset` of the run.
        images: What the images of the run are, if not those of the recipe's dataset, as a clause for the card.
        license: Of the weights.
    """

    run: Annotated[Path, tyro.conf.Positional]
    recipe: Annotated[str, tyro.conf.Positional]
    name: Annotated[str, tyro.conf.Positional]
    dataset: str
    images: str = ""
    license: str = "apache-2.0"


def main(options: PackageModel):
    folder = FOLDER / options.name
    trained = keras_vit.load(options.run)
    # Photographs are reduced to the size of the training images, which were reduced with a filter too.
    preprocessing = replace(trained.preprocessing, antialias=True)
    model = keras_vit.load(options.run, preprocessing=preprocessing)
    save(model, folder / "model.keras", overwrite=True, class_names=model.class_names)
    store_half(folder / "model.keras")
    card = folder / "model_card.md"
    card.write_text(write_card(options, folder / "model.keras"))
    print(card.read_text())


def store_half(file: Path):
    """Stores the weights of a .keras file in half the bytes; its model still computes in float32."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    half = io.BytesIO()
    with h5py.File(io.BytesIO(members[WEIGHTS])) as source, h5py.File(half, "w") as target:

        def copy(name, item):
            if isinstance(item, h5py.Group):
                target.require_group(name).attrs.update(item.attrs)
            else:
                target[name] = item[()].astype("float16") if item.dtype == "float32" else item[()]

        source.visititems(copy)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, WEIGHTS: half.getvalue()}.items():
            archive.writestr(name, content)


def write_card(options: PackageModel, file: Path) -> str:
    model, recipe = keras_vit.load(file), read_recipe(options.run / RECIPE)
    dataset = open_dataset(Data(dataset=options.dataset))
    check_class_count(dataset, model.num_classes)
    report = evaluate_classifier(model, dataset, recipe.data.test_split, batch_size=250)
    metrics = {
        **{name: report.summary[name] for name in ("images", "top1", "top5")},
        "negative_log_likelihood": report.summary["negative_log_likelihood"],
        f"expected calibration error ({BINS} bins)": report.summary["calibration_error"],
        **{f"recall of {row['class']}": row["accuracy"] for row in report.per_class},
        "sha256 of model.keras": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    name, folder = options.recipe, f"runs/{options.recipe}"
    start = RECIPES[name].weights
    published = replace(  # without paths of the machine that trained it
        recipe,
        weights=start,
        data=replace(recipe.data, dataset=name.split("-")[0]),
        run=replace(recipe.run, folder=folder),
    )
    origin = (
        f"Trained from {f'`{start}`' if start else 'random weights'} by `keras-vit train {name} --run.folder "
        f"{folder} --run.precision {recipe.run.precision}`; put into the package by "
        f"`python tools/package_model.py {folder} {name} {options.name} --dataset ...`. Stored in float16, with "
        "`antialias=True` for larger images."
    )
    images = f"`{published.data.dataset}`" + (f", {options.images}" if options.images else "")
    data = (
        f"{images}, split `{recipe.data.train_split}`. Metrics are of all images of its split "
        f"`{recipe.data.test_split}`; accuracies, recalls and calibration error are in [0, 1]."
    )
    return model_card(model, options.name, origin, data, asdict(published), metrics, options.license)


if __name__ == "__main__":
    main(tyro.cli(PackageModel))
