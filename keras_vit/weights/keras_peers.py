"""Vision Transformers of other Keras projects: KerasHub and tf-models-official, as files or as objects in memory.

Both build on `keras.layers.MultiHeadAttention`, so they share one naming (`KERAS_PEERS` in names.py); what differs is
how each spells a path, and what is read here is renamed to it.
"""

import re
from pathlib import Path

import numpy as np

from keras_vit.weights.files import BROKEN, Tensors, checked, read_json

# Of KerasHub's .weights.h5, whose arrays are numbered: the groups, and the names of what is in them.
_HUB_FILE = (
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
_HUB_TOKENS = {"0": "class_token", "1": "distillation_token", "2": "positions", "position_embedding/0": "positions"}
# Of the variables of KerasHub's objects.
_HUB_OBJECT = (
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
# Of the checkpoints and objects of tf-models-official.
_GARDEN = (
    (r"/\.ATTRIBUTES/VARIABLE_VALUE$", ""),
    (r":0$", ""),
    (r"^(model/)?backbone/", ""),
    (r"^model/layer_with_weights-0/", ""),
    (r"^model/layer_with_weights-1/", "head/"),
    (r"^layer_with_weights-0/", "patch_embedding/"),
    (r"^conv2d(_\d+)?/", "patch_embedding/"),
    (r"^dense(_\d+)?/", "head/"),
    (r"^(?:layer_with_weights-1|cls(?:_\d+)?)/cls$", "class_token"),
    (r"^(layer_with_weights-\d|encoder(_\d+)?)/(_pos_embed|posembed_input)/pos_embedding$", "positions"),
    (r"^layer_with_weights-\d/_encoder_layers/(\d+)/", r"block\1/"),
    (r"^encoder(?:_\d+)?/transformer_encoder_block(?:_(\d+))?/", lambda m: f"block{m[1] or 0}/"),
    (r"^(layer_with_weights-\d/_norm|encoder(_\d+)?/layer_normalization(_\d+)?)/", "norm/"),
    (r"^layer_with_weights-[23]/", "pre_logits/"),
    (r"/_?(attention|self_attention)_layer_norm/", "/layer_norm_1/"),
    (r"/(_output_layer_norm|output_layer_norm)/", "/layer_norm_2/"),
    (r"/(_attention_layer|self_attention)/", "/mha/"),
    (r"/mha/_?(query|key|value)(_dense)?/", r"/mha/\1/"),
    (r"/mha/(_output_dense|attention_output)/", "/mha/output/"),
    (r"/(_intermediate_dense|intermediate)/", "/mlp/dense_1/"),
    (r"^(block\d+)/(_output_dense|output)/", r"\1/mlp/dense_2/"),
    (r"/_?layer_scale_(attn|mlp)/layerscale_gamma$", r"/layer_scale_\1"),
)


def from_keras_hub(path) -> tuple[Tensors, dict]:
    """Arrays and description of a KerasHub preset folder or .weights.h5 file."""
    path = Path(path)
    files = [path] if path.is_file() else [path / name for name in ("model.weights.h5", "task.weights.h5")]
    files = [file for file in files if file.is_file()]
    if not files:
        raise FileNotFoundError(f"The folder {path} has no model.weights.h5.")
    found: dict = {}
    folder = files[0].parent
    for file in files:
        found |= _h5_names(file)
    config = {
        name: read_json(folder / f"{name}.json").get("config", {}) for name in ("config", "image_converter", "task")
    }
    shapes = {name: shape for name, (_, _, shape) in found.items()}

    def read(name):
        import h5py

        file, key, shape = found[name]
        with h5py.File(file) as opened:
            return checked(file, key, opened[key][()]).reshape(shape)

    return Tensors(files[0], shapes, read), config


def _h5_names(path) -> dict:
    """Our common spelling of each array to its file, key and shape."""
    import h5py

    names, shapes = [], {}
    try:
        with h5py.File(path) as file:
            keys = []
            file.visititems(lambda key, item: keys.append(key) if isinstance(item, h5py.Dataset) else None)
            for key in keys:
                if not key.startswith("optimizer"):
                    _refuse_other_files(path, key, file[key])
                    group = file[key.rpartition("/")[0]].attrs.get("name", "")
                    names.append((_hub_name(key, group), key))
                    shapes[key] = _three(key, file[key].shape)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read as an HDF5 file: {error}. {BROKEN}") from error
    return {name: (path, key, shapes[key]) for name, key in _by_name(path, names).items()}


def _refuse_other_files(path, key, dataset):
    """A file from elsewhere could name any file of this machine, whose bytes would become weights."""
    if dataset.external or dataset.is_virtual:
        raise ValueError(
            f"{path}: {key} keeps its numbers in another file (HDF5's external or virtual storage), which is not "
            "followed. Save the weights again with Keras, in one file."
        )


def _by_name(path, names) -> dict:
    """Pairs of our common spelling and the peer's name as a dictionary; raises ValueError for one of ours twice."""
    found: dict[str, str] = {}
    for ours, theirs in names:
        if found.setdefault(ours, theirs) != theirs:
            raise ValueError(f"{path} holds both {found[ours]} and {theirs}, which mean the same weight ({ours}).")
    return found


def _hub_name(key, group):
    name = _spelled(key, _HUB_FILE)
    if name in _HUB_TOKENS:
        return _HUB_TOKENS[name]
    part, _, number = name.rpartition("/")
    if re.fullmatch(r"dense(_\d+)?", part):
        part = "pre_logits" if group == "pre_logits" else "head"
    leaves = ("gamma", "beta") if "norm" in part else ("kernel", "bias")
    return f"{part}/{leaves[int(number)]}" if number in ("0", "1") else name


def from_object(model) -> tuple[Tensors, dict]:
    """Arrays and description of a model of KerasHub or tf-models-official in memory."""
    weights = {getattr(weight, "path", weight.name): weight for weight in model.weights}
    is_hub = any("transformer_block_1/" in name for name in weights)
    spelling = _HUB_OBJECT if is_hub else _GARDEN
    names = _by_name(model.name, ((_spelled(name, spelling), name) for name in weights))
    named = {name: weights[theirs] for name, theirs in names.items()}
    shapes = {name: _three(name, tuple(weight.shape)) for name, weight in named.items()}

    def read(name):
        return checked(model.name, name, np.asarray(named[name])).reshape(shapes[name])

    backbone = getattr(model, "backbone", model)
    config = {"config": backbone.get_config()} if is_hub else {}
    if is_hub and getattr(model, "pooling", None) is not None:
        config["task"] = {"pooling": model.pooling}
    converter = getattr(getattr(model, "preprocessor", None), "image_converter", None)
    if is_hub and converter is not None:
        config["image_converter"] = converter.get_config()
    return Tensors(Path(model.name), shapes, read), config


def from_model_garden(prefix) -> tuple[Tensors, dict]:
    """Arrays of a checkpoint that tf-models-official wrote; `prefix` is its path without ".index"."""
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{prefix} is a TensorFlow checkpoint, which TensorFlow reads: pip install 'keras_vit[tensorflow]'"
        ) from error
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        stored = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"{prefix} cannot be read as a TensorFlow checkpoint: {error}. {BROKEN}") from error
    others = ("optimizer", "save_counter", "global_step", "_CHECKPOINTABLE", "step/")
    kept = (key for key in stored if not key.startswith(others) and "OPTIMIZER_SLOT" not in key)
    keys = _by_name(prefix, ((_spelled(key, _GARDEN), key) for key in kept))
    shapes = {name: _three(name, tuple(stored[key])) for name, key in keys.items()}
    return Tensors(
        Path(prefix), shapes, lambda name: checked(prefix, name, reader.get_tensor(keys[name])).reshape(shapes[name])
    ), {}


def _spelled(name, rules):
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def _three(name, shape):
    """Positions of an embedding layer, (N, D), as (1, N, D); factors of a residual branch, (1, 1, D), as (D,)."""
    if "position_embedding" in name or name == "positions":
        return (1, *shape) if len(shape) == 2 else shape
    return shape[-1:] if "layer_scale" in name else shape
