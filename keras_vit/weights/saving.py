"""Saves weights: .npz as the paper's code, .safetensors as transformers, .keras as Keras."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.atomic_write import new_files
from keras_vit.class_names import class_names_text, labels_file
from keras_vit.weights.sources import hugging_face_writing, jax


def save(model, path, overwrite: bool = False, card: str | None = None, class_names=None) -> list[Path]:
    """Writes a model to files that other projects read.

    Args:
        model: A VisionTransformer; for "name.keras" any model of keras_vit.
        path: "name.npz" for google-research/vision_transformer (with the names of big_vision where only that supports
            the model: attention pooling, sine and cosine positions, a class token without position);
            "folder/model.safetensors" or "folder/" for transformers, with config.json and preprocessor_config.json, so
            that `from_pretrained(folder)` loads it; "name.keras" for Keras.
        overwrite: Whether existing files are replaced.
        card: Text of a model card (see `keras_vit.model_card`) to write next to the weights: model_card.md in a folder
            for transformers, otherwise name.npz.model_card.md or name.keras.model_card.md.
        class_names: Names of the classes in the order of the outputs, by default those of the model, to write next to
            the weights: labels.txt in a folder for transformers, whose config.json then has them too, otherwise
            name.npz.labels.txt. A .keras file has those of the model inside.

    Returns:
        The files written.

    Raises:
        ValueError: The format is unknown or cannot store the model; a weight is NaN or infinite, as large ones are in
            float16; the names are not as many as the classes, or one has several lines. An .npz file holds only
            weights: readers take preprocessing and, for a grid that is not square, the image size from elsewhere.
        FileExistsError: A file already exists.
        OSError: The disk is full or cannot be written; what was there before is unchanged.
    """
    path = main_file(path)
    if class_names is None and path.suffix != ".keras":
        class_names = getattr(model, "class_names", None)
    if class_names is not None and len(class_names) != model.num_classes:
        raise ValueError(f"Expected {model.num_classes} class names. Received: {len(class_names)}")
    writers: dict[Path, Callable[[Path], object]]
    if path.suffix == ".keras":
        writers = {path: model.save}
    elif not hasattr(getattr(model, "config", None), "depth"):  # of another kind than a VisionTransformer
        raise ValueError(f"Only a VisionTransformer can be saved as {path.suffix}. Save {model.name} as .keras.")
    elif path.suffix == ".npz":
        writers = jax.writers(model, path)
    else:
        writers = hugging_face_writing.writers(model, path, class_names)
    if card:
        writers[card_file(path)] = lambda file: file.write_text(card, encoding="utf-8")
    if class_names is not None:
        text = class_names_text(class_names)
        writers[labels_file(path)] = lambda file: file.write_text(text, encoding="utf-8")
    existing = [file for file in writers if file.exists()]
    if existing and not overwrite:
        raise FileExistsError(f"{existing[0].absolute()} already exists. Remove it, or pass overwrite=True.")
    _check_finite(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_files(*writers) as files:
        try:
            for file, write in zip(files, writers.values()):
                write(file)
        except (ValueError, TypeError, NotImplementedError):
            raise
        except Exception as error:  # on a full disk, safetensors and h5py raise errors of their own
            raise OSError(f"{path} cannot be written: {error}. Check the free space and the permissions.") from error
    return list(writers)


def _check_finite(model):
    from keras import ops

    for weight in model.weights:
        if not np.isfinite(ops.convert_to_numpy(ops.cast(weight, "float32"))).all():
            narrow = " float16 ends at 65,504: use float32." if model.variable_dtype == "float16" else ""
            raise ValueError(f"{weight.path} has values that are NaN or infinite. Nothing was written.{narrow}")


def card_file(path: Path) -> Path:
    """The model card beside the file of the weights; its name has the extension, since formats share a folder."""
    return path.with_name("model_card.md" if path.suffix == ".safetensors" else f"{path.name}.model_card.md")


def main_file(path) -> Path:
    """The file of the weights for a path of `save`; raises ValueError if the format is unknown."""
    path = Path(path)
    if path.suffix == "" or path.is_dir():
        path = path / "model.safetensors"
    if path.suffix not in (".npz", ".safetensors", ".keras"):
        raise ValueError(f"Expected a name that ends in .npz, .safetensors or .keras, or a folder. Received: {path}")
    return path
