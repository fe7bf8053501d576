"""The packaged classifier on photographs: top-3 classes, evidence for the first, and exported files."""

from dataclasses import asdict
from importlib import resources
from pathlib import Path

import numpy as np

import keras_vit
from keras_vit.inspect import figures
from keras_vit.rgb import as_rgb
from keras_vit_cli.classify.evidence import evidence
from keras_vit_cli.process import without_native_logs

NAME = "cifar10/R6_Ti_4"
# Reduced crops of the photographs: every other one calibrates the integer formats, the rest are compared.
NUM_CROPS = 200
FORMATS = ("float16", "dynamic-int8", "int8")


def classify_photographs(folder: Path, seed: int) -> dict:
    """Classifies and exports; returns the figure and rows of the report.

    Args:
        folder: For the exported files.
        seed: Of the crops.
    """
    model, photographs = keras_vit.load(NAME), read_photographs()
    predictions = model.classify(list(photographs.values()), top=3)
    for name, best in zip(photographs, predictions):
        print(f"{name:14}" + ", ".join(f"{label} {probability:.1%}" for label, probability in best))
    return {
        "figure": _figure(model, photographs, predictions),
        "exports": _export(model, photographs, folder, seed),
        "num_crops": NUM_CROPS // 2,
    }


def read_photographs() -> dict[str, np.ndarray]:
    """The photographs of the package, (H, W, 3) uint8, by file name."""
    with resources.as_file(resources.files("keras_vit_cli.demo").joinpath("images")) as folder:
        return {file.name: as_rgb(file) for file in sorted(folder.glob("*.jpg"))}


def _figure(model, photographs, predictions):
    rows = [list(photographs.values()), [evidence(model, image) for image in photographs.values()]]
    titles = ["\n".join(f"{name} {probability:.1%}" for name, probability in best) for best in predictions]
    return figures.image_grid(rows, ["photograph", "evidence for\nthe first"], titles, size=2)


@without_native_logs()
def _export(model, photographs, folder, seed) -> list[dict]:
    from keras_vit.export import check_parity, write_tflite

    crops, labels = _crops(photographs, model.class_names, model.image_size, seed)
    written = write_tflite(model, folder, FORMATS, crops[::2])
    rows = check_parity(model, {f"TFLite {name}": file for name, file in written.items()}, crops[1::2], labels[1::2])
    return [asdict(row) for row in rows]


def _crops(photographs, names, size, seed):
    """(n, H, W, 3) crops of at least half of each side, reduced to the model's size, and their labels."""
    from PIL import Image

    generator, crops, labels = np.random.default_rng(seed), [], []
    for i in range(NUM_CROPS):
        name = list(photographs)[i // 2 % len(photographs)]
        height, width = photographs[name].shape[:2]
        h, w = (int(side * generator.uniform(0.5, 1)) for side in (height, width))
        top, left = generator.integers(0, height - h + 1), generator.integers(0, width - w + 1)
        crop = Image.fromarray(photographs[name]).crop((left, top, left + w, top + h))
        crops.append(np.asarray(crop.resize(size[::-1], Image.Resampling.BILINEAR)))
        labels.append(names.index(name.removesuffix(".jpg")))
    return np.stack(crops), np.asarray(labels)
