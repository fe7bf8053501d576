"""What the code of the pages assumes: weights, images, a trained run. All small, so that it runs in seconds."""

import shutil
from dataclasses import replace

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit.recipes import configs
from keras_vit.recipes.configs import vtab
from keras_vit.recipes.recipe.file import write_recipe
from keras_vit.weights.downloads import cache_path

CLASSES = ("cat", "dog")


def prepare(folder, weights, data_dir, monkeypatch) -> dict:
    """Fills the working folder of a page's code; returns the variables that its code assumes."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KERAS_HOME", str(folder / "home"))
    for name in ("fetch_web_runtime", "unpack_web_runtime"):  # LiteRT.js has its own tests
        monkeypatch.setattr(f"keras_vit.export.web.page.{name}", lambda *args: None)
    monkeypatch.setattr(keras.applications, "EfficientNetB0", _network)  # whose weights would be downloaded
    _images(folder)
    _weights(folder, weights, monkeypatch)
    _recipes(data_dir, monkeypatch)
    pets = _toy(num_classes=len(CLASSES), class_names=CLASSES)
    (folder / "runs" / "pets").mkdir(parents=True)
    pets.save(folder / "runs" / "pets" / "model.keras")
    for name in ("masked", "mae"):
        (folder / "runs" / name).mkdir()
        _toy(num_classes=0).save(folder / "runs" / name / "model.keras")
    (folder / "runs" / "pets" / "labels.txt").write_text("\n".join(CLASSES) + "\n")
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), "uint8")
    x = pets.preprocess(images)
    y = pets.preprocess(np.random.default_rng(1).integers(0, 256, (5, 40, 50, 3), "uint8"))
    return {"images": images, "model": pets, "x": x, "y": y, "classes": [0, 1], "weights": pets.attention_maps(x)}


def _toy(**arguments):
    sizes = {"image_size": 32, "patch_size": 16, "depth": 1, "width": 48, "mlp_dim": 24, "num_heads": 3}
    model = keras_vit.VisionTransformer(**sizes, **arguments)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
    return model


def _network(include_top=True, input_shape=(32, 32, 3)):
    inputs = keras.Input(input_shape)
    maps = keras.layers.Conv2D(4, 3)(inputs)
    top = keras.layers.Dense(1000, "softmax")
    return keras.Model(inputs, top(keras.layers.GlobalAveragePooling2D()(maps)) if include_top else maps)


def _images(folder):
    random = np.random.default_rng(1)
    for split in ("train", "validation", "test"):
        for name in CLASSES:
            place = folder / "images" / split / name
            place.mkdir(parents=True)
            for i in range(8):
                Image.fromarray(random.integers(0, 256, (40, 50, 3), "uint8")).save(place / f"{i}.jpg")
    (photographs := folder / "cli" / "commands" / "demo" / "images").mkdir(parents=True)  # as in a clone
    for place in (folder, photographs):
        Image.fromarray(random.integers(0, 256, (40, 50, 3), "uint8")).save(place / "cat.jpg")


def save_weights(folder):
    """Saves a toy with 1,000 classes as a file and as a folder of the Hugging Face Hub."""
    toy = _toy(num_classes=1000)
    keras_vit.weights.save(toy, folder / "toy.npz")
    keras_vit.weights.save(toy, folder / "hub")


def _weights(folder, weights, monkeypatch):
    """Puts the toy in every place that the pages load from: a file, the download cache, the Hugging Face Hub."""
    published = ("vit/imagenet21k/ViT-B_16", "vit/imagenet21k+imagenet2012/ViT-B_16")
    for path in (folder / "B_16.npz", *map(cache_path, published)):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(weights / "toy.npz", path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **options: str(weights / "hub"))


def _recipes(data_dir, monkeypatch):
    """Shrinks the recipes that the pages run to two steps of a toy."""

    def small(recipe):
        toy = replace(recipe.architecture, depth=1, width=12, mlp_dim=24, num_heads=3)
        few = "test[:16]"
        data = replace(recipe.data, dataset="digits", data_dir=data_dir, batch_size=8, cache=False)
        data = replace(data, validation_split=few, test_split=few)
        run = replace(recipe.run, steps_per_execution=1, precision="float32")
        optimizer = replace(recipe.optimizer, warmup_steps=1)
        length = {"total_steps": 2} | ({"total_epochs": None} if recipe.has_labels else {})
        return replace(recipe, architecture=toy, data=data, run=run, optimizer=optimizer, **length)

    for name in ("digits-masked-patch", "digits-finetune", "cifar10-10ep", "cifar10-masked-patch"):
        monkeypatch.setitem(configs.RECIPES, name, small(configs.RECIPES[name]))
    task = small(vtab.RECIPES["vtab-pets"])
    splits = {"train_split": "train", "validation_split": None, "test_split": "test"}
    task = replace(task, data=replace(task.data, dataset="folder:images", **splits))
    monkeypatch.setitem(vtab.RECIPES, "vtab-pets", task)


def previous_run(folder, monkeypatch):
    """Changes to the folder and writes the recipe of a previous run there."""
    monkeypatch.chdir(folder)
    (folder / "runs" / "c10").mkdir(parents=True)
    write_recipe(configs.RECIPES["cifar10-10ep"], folder / "runs" / "c10" / "recipe.json")


def free_memory():
    """Frees what the code of a page left in Keras."""
    keras.utils.clear_session()
