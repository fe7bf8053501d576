"""From a file, a folder, a name or a model in memory to the `Checkpoint` that it is, and the tables of all sources.

To add a source of .npz or .safetensors files, write a module of `sources/` and name it in ARRAY_SOURCES, where the
first that recognizes a file reads it, and its `Source` in SOURCES. It has:

- a `Source` (naming.py): its name and title; what its files leave implicit, such as GELU, preprocessing and how
  positions are resampled; and a `Naming`: which of its arrays hold each weight of ours (`keras_vit.named_weights`);
- `recognizes(tensors) -> bool`: whether these are the names of its arrays;
- `read(tensors, image_size) -> Checkpoint` (checkpoint.py): the arrays, the model's arguments and the preprocessing, by
  names, shapes and the JSON files beside the file. sources/arrays.py has what several sources need.

`keras_vit.load` knows no source: it builds the model and compares all names and shapes. Files of other kinds, such as
KerasHub's, have a line in `_read`. The names of files in folders are in FOLDER_FILES, on the Hub in HUGGING_FACE_FILES
of downloads.py; docs/weights.md lists the sources.
tests/goldens.py has an entry for each model that is compared with its project; tools/model_goldens.py writes them.
"""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from keras_vit.images import as_size
from keras_vit.images.pixel_range import CLIP, IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.downloads import download, download_hugging_face
from keras_vit.weights.files import (
    PICKLED,
    PICKLED_HINT,
    Tensors,
    check_local,
    is_unfinished,
    open_tensors,
    read_json,
    unfinished_message,
)
from keras_vit.weights.published import is_published, resolve
from keras_vit.weights.sources import (
    bit,
    hugging_face,
    hugging_face_dinov2,
    hugging_face_dinov3,
    hugging_face_towers,
    jax,
    keras_hub,
    model_garden,
    open_clip,
    timm,
    timm_eva,
)

# Sources of .npz and .safetensors files. The first that recognizes a file reads it: hybrids of jax have names of bit,
# and DINOv2 of transformers some of the source after it.
ARRAY_SOURCES = (
    *(hugging_face_dinov2, hugging_face_dinov3, hugging_face, hugging_face_towers),
    *(timm_eva, timm, open_clip, jax, bit),
)
SOURCES = (
    *(jax.VIT_JAX, jax.BIG_VISION, bit.BIT_V1, bit.BIT_PAPER, bit.BIT_MODELS),
    *(hugging_face.HUGGING_FACE, hugging_face_dinov2.DINOV2, hugging_face_dinov3.DINOV3, hugging_face_towers.TOWERS),
    *(timm.TIMM, timm.DINOV2, open_clip.OPEN_CLIP, keras_hub.KERAS_HUB, model_garden.MODEL_GARDEN),
)
FOLDER_FILES = ("model.safetensors", "model.safetensors.index.json", "open_clip_model.safetensors")
# Kinds of models of transformers that are asked for, by `model_type` of config.json, and why they are not supported.
UNSUPPORTED = {
    "siglip2": "its images have grids of any shape (NaFlex); SigLIP 2 of one size, such as "
    "google/siglip2-base-patch16-224, loads",
    "siglip2_vision_model": "its images have grids of any shape (NaFlex)",
    "beit": "its positions are biases of the attention",
    "data2vec-vision": "its positions are biases of the attention",
    "swin": "its attention is within windows",
    "swinv2": "its attention is within windows",
    "aimv2": "its normalizations subtract no mean",
    "aimv2_vision_model": "its normalizations subtract no mean",
    "ijepa": "it has neither a class token nor a pooling",
}


def open_checkpoint(weights, image_size=None) -> Checkpoint:
    """Finds and recognizes a checkpoint; reads only the names and shapes of its arrays.

    Args:
        weights: A file (.npz, .safetensors), a folder with model.safetensors and config.json, "hf:owner/name" on the
            Hugging Face Hub, the name of a published checkpoint such as "augreg/Ti_16-i21k-300ep-...", a preset folder
            or .weights.h5 file of KerasHub, a checkpoint of tf-models-official, or a model of either in memory.
        image_size: Image size that it was trained at, where the file does not specify it, or only by the number of its
            positions.

    Raises:
        FileNotFoundError, ValueError, OSError: There is no such checkpoint, it could not be downloaded, or its source
            is unknown.
    """
    checkpoint = _read(weights, image_size)
    source, arguments = checkpoint.source, checkpoint.arguments
    if not checkpoint.is_bit:
        arguments = {"gelu": source.gelu, "epsilon": source.epsilon, **arguments}
        if checkpoint.channels != 3:
            arguments["channels"] = checkpoint.channels
        if image_size is not None:
            arguments["image_size"] = as_size(image_size)
    preprocessing = {**source.preprocessing, **pixel_scaling(checkpoint), **checkpoint.preprocessing}
    return replace(checkpoint, arguments=arguments, preprocessing=preprocessing)


def _read(weights, image_size) -> Checkpoint:
    if hasattr(weights, "weights"):
        return (keras_hub if keras_hub.recognizes_model(weights) else model_garden).read_model(weights)
    path = locate(weights)
    try:
        if path.is_dir() or path.name.endswith(".weights.h5"):
            return keras_hub.read_files(path)
        if model_garden.is_checkpoint(path):
            return model_garden.read_checkpoint(path)
        return _read_arrays(open_tensors(path), image_size)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:  # the JSON files beside it may hold all
        raise ValueError(
            f"The description of {path}, such as its config.json, has a value of another type: {error}"
        ) from error


def _read_arrays(tensors: Tensors, image_size) -> Checkpoint:
    is_npz = tensors.path.suffix == ".npz"
    kind = None if is_npz else read_json(tensors.path.with_name("config.json")).get("model_type")
    if kind in UNSUPPORTED:
        raise ValueError(
            f"{tensors.path} is a {kind} of transformers, which is not supported: {UNSUPPORTED[kind]}. Use "
            "transformers."
        )
    tensors = _unwrapped(tensors)
    for source in ARRAY_SOURCES:
        if source.recognizes(tensors):
            return source.read(tensors, image_size)
    some = ", ".join(sorted(tensors.shapes)[:3]) or "no arrays"
    raise ValueError(
        f"{tensors.path} is not a Vision Transformer of a supported source: it contains {some}, ... Supported: "
        f"{', '.join(source.title for source in SOURCES)}."
    )


# Before all names of a file: of DistributedDataParallel, torch.compile, Lightning, and of self-supervised training.
WRAPPERS = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.", "teacher.", "student.")


def _unwrapped(tensors: Tensors) -> Tensors:
    """The arrays without what wrappers of a model put before every name."""
    if any("lora_" in name or ".base_layer." in name for name in tensors.shapes):
        raise ValueError(
            f"{tensors.path} has the adapters of PEFT. Merge them first: model = peft_model.merge_and_unload(); "
            "model.save_pretrained(folder)"
        )
    while prefix := next((w for w in WRAPPERS if all(name.startswith(w) for name in tensors.shapes)), None):
        if not tensors.shapes:
            break
        tensors = tensors.renamed(partial(re.sub, f"^{re.escape(prefix)}", ""))
    return tensors


def locate(weights) -> Path:
    """The local file or folder of `weights`, downloaded if it is a name."""
    text = str(weights)
    check_local(text)
    path = Path(weights) if not text.startswith("hf:") else download_hugging_face(text)
    if path.is_dir() and not (path / "model.weights.h5").is_file():
        found = next((path / name for name in FOLDER_FILES if (path / name).is_file()), None)
        if found is None:
            if is_unfinished(path):
                raise FileNotFoundError(unfinished_message(path))
            hint = PICKLED_HINT if any(file.suffix in PICKLED for file in path.iterdir()) else ""
            raise FileNotFoundError(f"The folder {path} has none of {', '.join(FOLDER_FILES)}, model.weights.h5.{hint}")
        return found
    if not path.exists() and not model_garden.is_checkpoint(path) and resolve(text):
        return download(text)
    return path


# Parts of the names of models of timm and Hugging Face that all have ImageNet's mean: DeiT and DeiT III, DINO, MAE.
IMAGENET_NAMES = re.compile(r"(?<![a-z])(deit|dino|mae(?![a-z])|ijepa)")
# Files with such a name are described by the name of their folder.
UNNAMED = ("model", "pytorch_model")


def pixel_scaling(checkpoint: Checkpoint) -> dict:
    """The field `origin` of `Preprocessing`, and `mean` and `std` if they are assumed and not 0.5."""
    fields = checkpoint.preprocessing
    if {"mean", "std"} <= fields.keys():
        return {"origin": "file"}
    if is_published(checkpoint.tensors.path):
        return {"origin": "table"}
    if checkpoint.arguments.get("norm_before_encoder"):  # only CLIP's models have it
        return {"origin": "assumed", **CLIP}
    return {"origin": "assumed", **(IMAGENET if _resembles_imagenet(checkpoint) else {})}


def _resembles_imagenet(checkpoint) -> bool:
    """Whether all published models with these shapes, or this name, have ImageNet's mean, as in timm 1.0.27.

    Shapes: DeiT's distillation token, in files of transformers a register where it has no head; timm's class token with
    LayerScale, of DeiT III and DINOv2 (registers: none or 4). The plain shapes of DeiT are those of ViT.
    """
    arguments, source, path = checkpoint.arguments, checkpoint.source.name, checkpoint.tensors.path
    if source not in ("timm", "hugging_face", "keras_hub"):
        return False
    name = path.parent.name if path.stem.partition(".")[0] in UNNAMED else path.name
    has_scale = source == "timm" and arguments["layer_scale"] is not None and arguments["class_token"]
    return bool(
        arguments.get("distillation")
        or (source == "hugging_face" and arguments["register_tokens"])
        or (has_scale and arguments["register_tokens"] in (0, 4))
        or IMAGENET_NAMES.search(name.lower())
    )
