"""Weights out: .npz as the paper's code, .safetensors as transformers, .keras. Written aside, then renamed."""

import json
import math
import os
import tempfile
from pathlib import Path

import numpy as np
from keras import ops

from keras_vit.weights.names import BIG_VISION, HUGGING_FACE, PRE_LINEN, VIT_JAX
from keras_vit.weights.preprocessing import PILLOW
from keras_vit.weights.transfer import named_weights


def save(model, path, overwrite=False, card: str | None = None) -> list[Path]:
    """Writes a VisionTransformer to a file that other projects read.

    Args:
        model: The model.
        path: "name.npz" for google-research/vision_transformer (big_vision's names where only these can say it:
            attention pooling, sine and cosine positions, a class token without position); "folder/model.safetensors"
            or "folder/" for transformers, with config.json and preprocessor_config.json beside it, so that
            `from_pretrained(folder)` loads it; "name.keras" for Keras.
        overwrite: Whether files that are there already are replaced.
        card: Text of a model card (`keras_vit.model_card`) to put beside the weights: model_card.md in a folder for
            transformers, otherwise name.model_card.md.

    Returns:
        The files written.

    Raises:
        ValueError: The format is unknown or cannot say what the model is. An .npz file holds weights only: readers take
            preprocessing and, for a grid that is not square, the image size from elsewhere.
        FileExistsError: There is such a file already.
    """
    path = main_file(path)
    if path.suffix == ".keras":
        contents = {path: model.save}
    elif "depth" not in getattr(model, "arguments", {}):
        raise ValueError(f"Only a VisionTransformer can be saved as {path.suffix}. Save {model.name} as .keras.")
    else:
        contents = (_npz_file if path.suffix == ".npz" else _hugging_face_files)(model, path)
    if card:
        name = "model_card.md" if path.suffix == ".safetensors" else f"{path.stem}.model_card.md"
        contents[path.with_name(name)] = lambda file: file.write_text(card, encoding="utf-8")
    existing = [file for file in contents if file.exists()]
    if existing and not overwrite:
        raise FileExistsError(f"{existing[0].absolute()} exists already. Remove it, or allow it to be overwritten.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as aside:
        for file, write in contents.items():
            write(Path(aside) / file.name)
        for file in contents:
            os.replace(Path(aside) / file.name, file)
    return list(contents)


def main_file(path) -> Path:
    """The file that holds the weights, of a path for `save`; raises ValueError if its format is unknown."""
    path = Path(path)
    if path.suffix == "" or path.is_dir():
        path = path / "model.safetensors"
    if path.suffix not in (".npz", ".safetensors", ".keras"):
        raise ValueError(f"Expected a name that ends in .npz, .safetensors or .keras, or a folder. Received: {path}")
    return path


def _arrays(model, naming, prefix=lambda name: name) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    homeless = []
    for name, variable in named_weights(model).items():
        pieces = naming.pieces(name, variable.shape, model.arguments.get("num_heads"))
        if pieces[0].name.startswith("("):
            homeless.append(name)
            continue
        values = naming.to_theirs(ops.convert_to_numpy(variable).astype("float32"), pieces)
        arrays |= {prefix(piece.name): value for piece, value in zip(pieces, values)}
    if homeless:
        raise ValueError(f"The format has no place for {', '.join(homeless[:5])}{', ...' if homeless[5:] else ''}.")
    return arrays


def _refuse(model, format_name, **wanted):
    """Raises a ValueError if arguments that leave no trace among the weights are other than the format means."""
    for name, values in wanted.items():
        if model.arguments[name] not in values:
            raise ValueError(
                f"{format_name} cannot say {name}={model.arguments[name]!r}, only "
                f"{' or '.join(map(repr, values))}. Save the model as .keras, or load it with {name}={values[0]!r} if "
                "the weights were trained so."
            )


def _npz_file(model, path):
    ours = model.arguments
    wanted = {"position_embedding": ("learned_1d", "sincos_2d"), "position_placement": ("stem",), "axial": (False,)}
    _refuse(model, "An .npz file", **wanted, register_tokens=(0,), gelu=("tanh",), epsilon=(1e-6,))
    if ours["num_classes"]:
        _refuse(model, "An .npz file with a head", pooling=("token", "gap", "map"))
    patches = model.grid[0] * model.grid[1]
    learned = ours["position_embedding"] == "learned_1d"
    if learned and model.grid[0] != model.grid[1] and math.isqrt(patches) ** 2 == patches:
        raise ValueError(
            f"An .npz file cannot say that {patches} positions are a grid of {model.grid}: readers would take it for "
            "a square. Save the model as .keras."
        )
    if ours["pooling"] in ("gap", "map"):
        _refuse(model, f"An .npz file with pooling={ours['pooling']!r}", class_token=(False,))
    if ours["resnet_stages"] is not None:
        _refuse(model, "An .npz file", resnet_form=("v1",))
    only_big_vision = ours["pooling"] == "map" or ours["position_embedding"] == "sincos_2d"
    only_big_vision |= not ours["prefix_positions"]
    if only_big_vision and ours["class_token"]:
        _refuse(model, "An .npz file of big_vision", prefix_positions=(False,))
    if only_big_vision:
        arrays = _arrays(model, BIG_VISION)
        return {path: lambda file: np.savez(file, **arrays)}
    # The published files have the numbers from before linen, and readers such as timm's know no others.
    old = {new: old for old, new in PRE_LINEN.items()}
    arrays = _arrays(model, VIT_JAX, lambda name: "/".join(old.get(part, part) for part in name.split("/")))
    return {path: lambda file: np.savez(file, **arrays)}


def _hugging_face_files(model, path):
    ours = model.arguments
    _refuse(
        model,
        "A file of transformers",
        pooling=("token", "none"),
        class_token=(True,),
        register_tokens=(0,) if ours["distillation"] else (0, 1),
        position_embedding=("learned_1d",),
        position_placement=("stem",),
        prefix_positions=(True,),
        axial=(False,),
        resnet_stages=(None,),
        norm_after_pooling=(False,),
    )
    if ours["num_classes"]:
        _refuse(model, "A file of transformers with a head", representation_size=(None,), pooling=("token",))
    deit = ours["distillation"] or ours["register_tokens"] == 1
    kind, body = ("deit", "DeiT") if deit else ("vit", "ViT")
    head = "ForImageClassificationWithTeacher" if ours["distillation"] else "ForImageClassification"
    config = _config(model) | {"model_type": kind, "architectures": [body + (head if ours["num_classes"] else "Model")]}

    def prefixed(name):
        if name.startswith("classifier.") and ours["distillation"]:
            return f"cls_{name}"
        if name.startswith(("classifier.", "distillation_classifier.", "pooler.")):
            return name
        return f"{kind}.{name}" if ours["num_classes"] else name

    arrays = _arrays(model, HUGGING_FACE, prefixed)

    def write_weights(file):
        from safetensors.numpy import save_file

        save_file(arrays, file, metadata={"format": "pt"})  # readers of transformers ask for this entry

    def write_json(content):
        return lambda file: file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    return {
        path: write_weights,
        path.with_name("config.json"): write_json(config),
        path.with_name("preprocessor_config.json"): write_json(_preprocessor_config(model.preprocessing)),
    }


def _config(model) -> dict:
    ours = model.arguments
    height, width = model.image_size
    if model.patch_size[0] != model.patch_size[1]:
        raise ValueError(f"A file of transformers cannot say patch_size={model.patch_size}, only square patches.")
    labels = {str(i): f"LABEL_{i}" for i in range(ours["num_classes"])}
    return {
        "attention_probs_dropout_prob": ours["attention_dropout"],
        "encoder_stride": model.patch_size[0],
        "hidden_act": "gelu" if ours["gelu"] == "erf" else "gelu_pytorch_tanh",
        "hidden_dropout_prob": ours["dropout"],
        "hidden_size": ours["width"],
        "id2label": labels,
        "image_size": height if height == width else [height, width],
        "initializer_range": 0.02,
        "intermediate_size": ours["mlp_dim"],
        "label2id": {label: int(i) for i, label in labels.items()},
        "layer_norm_eps": ours["epsilon"],
        "num_attention_heads": ours["num_heads"],
        "num_channels": 3,
        "num_hidden_layers": ours["depth"],
        "patch_size": model.patch_size[0],
        "pooler_act": "tanh",
        "pooler_output_size": ours["representation_size"] or ours["width"],
        "qkv_bias": True,
        "torch_dtype": "float32",
    }


def _preprocessor_config(images) -> dict:
    height, width = images.image_size
    numbers = {name: number for number, name in PILLOW.items()}
    if images.interpolation not in numbers:
        raise ValueError(
            f"A file of transformers cannot say interpolation={images.interpolation!r}, only {', '.join(numbers)}."
        )
    config = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(images.mean),
        "image_processor_type": "ViTImageProcessor",
        "image_std": list(images.std),
        "resample": numbers[images.interpolation],
        "rescale_factor": 1 / 255,
        "size": {"height": height, "width": width},
    }
    if images.crop_fraction < 1.0 or images.resize == "shortest":
        sides = [int(side / images.crop_fraction + 1e-6) for side in (height, width)]
        shortest = images.resize == "shortest"
        config |= {
            # The one of ViT does not crop; that of CLIP also fits the shorter side.
            "image_processor_type": "CLIPImageProcessor" if shortest else "DeiTImageProcessor",
            "size": {"shortest_edge": min(sides)} if shortest else {"height": sides[0], "width": sides[1]},
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
        }
    return config
