"""ViT and DeiT of KerasHub: preset folders, .weights.h5 files and models in memory."""

import re
from pathlib import Path

import numpy as np

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, checked, read_json
from keras_vit.weights.hdf5 import h5_arrays, open_h5
from keras_vit.weights.naming import Source
from keras_vit.weights.sources.arrays import respell
from keras_vit.weights.sources.keras_attention import (
    NAMING,
    by_table_name,
    model_arguments,
    model_tensors,
    table_shape,
    variable_path,
)

KERAS_HUB = Source(
    "keras_hub",
    "KerasHub",
    NAMING,
    gelu="erf",
    epsilon=1e-6,
    resample="bicubic",
    preprocessing={"resize": "shortest"},
)
# Names of the layers in a .weights.h5 file; the arrays of a layer are numbered.
FILE_SPELLING = (
    (r"(^|/)layers/", r"\1"),
    (r"^(vi_t|dei_t)_backbone/", ""),
    (r"^(vi_t_patching_and_embedding|dei_t_embeddings)/", ""),
    (r"^(?:vi|dei)_t_encoder/encoder_layers/(?:vi|dei)_t_encoder_block(?:_(\d+))?/", lambda m: f"block{m[1] or 0}/"),
    (r"^(vi|dei)_t_encoder/layer_norm/", "norm/"),
    (r"/(query|key|value|output)_dense/", r"/\1/"),
    (r"/mlp/dense/", "/mlp/dense_1/"),
    (r"/output_layer/dense/", "/mlp/dense_2/"),
    (r"vars/(\d+)$", r"\1"),
)
TOKENS = {"0": "class_token", "1": "distillation_token", "2": "positions", "position_embedding/0": "positions"}
# Paths of the variables of a model in memory.
MODEL_SPELLING = (
    (r"^.*?((?:vi|dei)t_(?:patching_and_embedding|encoder)/|pre_logits/|predictions/)", r"\1"),
    (r"^(vit|deit)_patching_and_embedding/", ""),
    (r"^position_embedding(/embeddings)?$", "positions"),
    (r"^(?:vit|deit)_encoder/transformer_block_(\d+)/", lambda m: f"block{int(m[1]) - 1}/"),
    (r"^(vit|deit)_encoder/ln/", "norm/"),
    (r"/ln_(\d)/", r"/layer_norm_\1/"),
    (r"/attention_output/", "/output/"),
    (r"/mlp/dense/", "/mlp/dense_1/"),
    (r"/output_layer/output/", "/mlp/dense_2/"),
    (r"^predictions/", "head/"),
)


def read_files(path: Path) -> Checkpoint:
    """The checkpoint in a preset folder or a .weights.h5 file, with the JSON files in its folder."""
    files = [path] if path.is_file() else [path / name for name in ("model.weights.h5", "task.weights.h5")]
    files = [file for file in files if file.is_file()]
    if not files:
        raise FileNotFoundError(f"The folder {path} has no model.weights.h5.")
    found: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    folder = files[0].parent
    for file in files:
        found |= _h5_arrays(file)
    config = {
        name: read_json(folder / f"{name}.json").get("config", {}) for name in ("config", "image_converter", "task")
    }

    def read(name):
        file, key, shape = found[name]
        with open_h5(file) as opened:
            return checked(file, key, opened[key][()]).reshape(shape)

    return _checkpoint(Tensors(files[0], {name: shape for name, (_, _, shape) in found.items()}, read), config)


def _h5_arrays(path) -> dict:
    """The table's name of each array to its file, key and shape."""
    names: list[tuple[str, str]] = []
    shapes = {}
    with open_h5(path) as file:
        for key, array in h5_arrays(file).items():
            if not key.startswith("optimizer"):
                layer_name = file[key.rpartition("/")[0]].attrs.get("name", "")
                names.append((_file_respell(key, layer_name), key))
                shapes[key] = table_shape(key, array.shape)
    return {name: (path, key, shapes[key]) for name, key in by_table_name(path, names).items()}


def _file_respell(key, layer_name):
    name = respell(key, FILE_SPELLING)
    if name in TOKENS:
        return TOKENS[name]
    layer, _, index = name.rpartition("/")
    if re.fullmatch(r"dense(_\d+)?", layer):
        layer = "pre_logits" if layer_name == "pre_logits" else "head"
    leaves = ("gamma", "beta") if "norm" in layer else ("kernel", "bias")
    return f"{layer}/{leaves[int(index)]}" if index in ("0", "1") else name


def recognizes_model(model) -> bool:
    """Whether a model in memory is of KerasHub, which numbers the blocks from 1."""
    return any("transformer_block_1/" in variable_path(weight) for weight in model.weights)


def read_model(model) -> Checkpoint:
    """A model in memory as a checkpoint; raises ValueError if it is not a Vision Transformer."""
    config = {"config": getattr(model, "backbone", model).get_config()}
    if getattr(model, "pooling", None) is not None:
        config["task"] = {"pooling": model.pooling}
    converter = getattr(getattr(model, "preprocessor", None), "image_converter", None)
    if converter is not None:
        config["image_converter"] = converter.get_config()
    return _checkpoint(model_tensors(model, MODEL_SPELLING), config)


def _checkpoint(tensors, config):
    fields = _preprocessing_fields(config.get("image_converter", {}))
    return Checkpoint(tensors, KERAS_HUB, model_arguments(tensors, config), fields)


def _preprocessing_fields(config):
    """Fields of `Preprocessing` of an image converter: pixels in [0, 255] * scale + offset."""
    fields: dict = {}
    if config.get("scale") is not None:
        std = 1.0 / (255.0 * np.broadcast_to(np.asarray(config["scale"], "float64"), 3))
        mean = -np.broadcast_to(np.asarray(config.get("offset") or 0.0, "float64"), 3) * std
        fields |= {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
    if "crop_to_aspect_ratio" in config:
        fields["resize"] = "shortest" if config["crop_to_aspect_ratio"] else "squash"
    for name in ("interpolation", "antialias"):
        if name in config:
            fields[name] = config[name]
    return fields
