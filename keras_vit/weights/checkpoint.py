"""A published model in a file or folder: what it is, before any weight is read."""

import math
from dataclasses import dataclass
from pathlib import Path

from keras_vit.images import as_size
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import name_of
from keras_vit.weights import architecture, keras_peers, names
from keras_vit.weights import preprocessing as images
from keras_vit.weights.downloads import download
from keras_vit.weights.files import PICKLED, PICKLED_HINT, Tensors, check_local, open_tensors, read_json
from keras_vit.weights.hub import download_hf
from keras_vit.weights.published import resolve
from keras_vit.weights.sources import SOURCES, Source


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Args:
        tensors: Its arrays, under the names of its source.
        source: Key of `SOURCES`.
        arguments: Of the `VisionTransformer` or `BiT` that it was made for. `image_size` and `num_heads` are None where
            the file does not tell.
        preprocessing: How its images were prepared, as fields of `Preprocessing` without the size.
    """

    tensors: Tensors
    source: str
    arguments: dict
    preprocessing: dict

    @property
    def origin(self) -> Source:
        return SOURCES[self.source]

    @property
    def is_bit(self) -> bool:
        return "stages" in self.arguments

    @property
    def num_heads(self) -> int | None:
        """Those of the file, or of published models of its width where it does not tell; None if unknown, or a BiT."""
        return self.arguments.get("num_heads") or architecture.usual_heads(self.arguments.get("width"))

    def describe(self) -> dict:
        """What `keras-vit describe` prints."""
        kind, arguments, size = "BiT", self.arguments, self.arguments.get("image_size")
        if not self.is_bit:
            kind, arguments = "VisionTransformer", {**arguments, "num_heads": self.num_heads}
        preprocessing = Preprocessing(as_size(size or 224), **self.preprocessing).get_config() | {"image_size": size}
        weights = sum(math.prod(shape) for shape in self.tensors.shapes.values())
        return description(self.origin.title, kind, arguments, preprocessing, weights)


def description(source, architecture, arguments, preprocessing, weights) -> dict:
    """What `keras-vit describe` prints of a checkpoint or a model: `weights` is their number."""
    no_size = "any" if architecture == "BiT" else "not in the file"
    return {
        "source": source,
        "architecture": architecture,
        "variant": name_of(arguments) or "none of the published",
        "image_size": arguments.get("image_size") or no_size,
        "num_classes": arguments["num_classes"],
        "gelu": arguments.get("gelu", "none"),
        "epsilon": arguments.get("epsilon", "of its form"),
        "preprocessing": preprocessing,
        "weights": weights,
        "arguments": {name: value for name, value in arguments.items() if name != "preprocessing"},
    }


def open_checkpoint(weights, image_size=None) -> Checkpoint:
    """Finds and recognizes a checkpoint; reads its names and shapes only.

    Args:
        weights: A file (.npz, .safetensors), a folder with model.safetensors and config.json, "hf:owner/name" on the
            Hugging Face hub, or the name of a published checkpoint such as "augreg/Ti_16-i21k-300ep-...".
        image_size: Image size that it was trained at, where the file does not tell, or tells the number of its
            positions only.

    Raises:
        FileNotFoundError, ValueError, OSError: There is no such checkpoint, it cannot be fetched, or it is of no known
            kind.
    """
    if hasattr(weights, "weights"):
        found = _from_keras_peer(*keras_peers.from_object(weights))
    else:
        path = locate(weights)
        found = _from_folder_or_checkpoint(path) or _from_tensors(open_tensors(path), image_size)
    tensors, source, arguments, preprocessing = found
    origin = SOURCES[source]
    if "depth" in arguments:
        arguments = {"gelu": origin.gelu, "epsilon": origin.epsilon, **arguments}
        if image_size is not None:
            arguments["image_size"] = as_size(image_size)
    return Checkpoint(tensors, source, arguments, {**origin.preprocessing, **preprocessing})


def locate(weights) -> Path:
    """The file or folder that `weights` names, downloaded if need be."""
    text = str(weights)
    check_local(text)
    path = Path(weights) if not text.startswith("hf:") else download_hf(text)
    names_in_folder = ("model.safetensors", "model.safetensors.index.json")
    if path.is_dir() and not (path / "model.weights.h5").is_file():
        found = next((path / name for name in names_in_folder if (path / name).is_file()), None)
        if found is None:
            hint = PICKLED_HINT if any(file.suffix in PICKLED for file in path.iterdir()) else ""
            raise FileNotFoundError(
                f"The folder {path} has none of {', '.join(names_in_folder)}, model.weights.h5.{hint}"
            )
        return found
    if not path.exists() and not _is_model_garden(path) and resolve(text):
        return download(text)
    return path


def _is_model_garden(path):
    return path.suffix == ".index" or path.with_name(f"{path.name}.index").is_file()


def _from_folder_or_checkpoint(path):
    """What is not one file of named arrays: a preset of KerasHub, a checkpoint of TensorFlow; None for all else."""
    if path.is_dir() or path.name.endswith(".weights.h5"):
        return _from_keras_peer(*keras_peers.from_keras_hub(path), "keras_hub")
    if _is_model_garden(path):
        return _from_keras_peer(*keras_peers.from_model_garden(str(path).removesuffix(".index")), "model_garden")
    return None


def _from_keras_peer(tensors, config, source=None):
    if "patch_embedding/kernel" not in tensors:
        raise ValueError(
            f"{tensors.path} is no Vision Transformer of KerasHub or tf-models-official. Weights that a model of "
            "keras_vit saved with save_weights do not say which model: build it and use model.load_weights(file)."
        )
    source = source or ("keras_hub" if "config" in config else "model_garden")
    arguments = _read(architecture.from_keras_peer, tensors, config)
    return tensors, source, arguments, images.from_keras_hub(config.get("image_converter", {}))


def _from_tensors(tensors, image_size):
    """An .npz or .safetensors file, recognized by the names of its arrays."""
    path = tensors.path
    if any(name.endswith("embeddings.patch_embeddings.projection.weight") for name in tensors.shapes):
        tensors, beside = names.hugging_face(tensors), read_json(path.with_name("preprocessor_config.json"))
        arguments = _read(architecture.from_hugging_face, tensors, read_json(path.with_name("config.json")))
        return tensors, "hugging_face", arguments, images.from_hugging_face(beside)
    if "patch_embed.proj.weight" in tensors:
        config = read_json(path.with_name("config.json"))
        if image_size is not None:
            config = {**config, "model_args": {**config.get("model_args", {}), "img_size": image_size}}
        tensors = names.timm(tensors)
        arguments = _read(architecture.from_timm, tensors, config)
        return tensors, "timm", arguments, images.from_timm(config.get("pretrained_cfg", {}))
    tensors = names.linen(tensors)
    if "embedding/kernel" in tensors:
        source = "vit_jax" if "Transformer/posembed_input/pos_embedding" in tensors else "big_vision"
        return tensors, source, _read(architecture.from_jax, tensors), {}
    if any(name.endswith("conv_root/kernel") or "root_block/" in name for name in tensors.shapes):
        return tensors, *_read(architecture.from_bit, tensors), {}
    some = ", ".join(sorted(tensors.shapes)[:3]) or "no arrays"
    raise ValueError(
        f"{path} is not a Vision Transformer of a known source: it holds {some}, ... Known sources: "
        f"{', '.join(source.title for source in SOURCES.values())}."
    )


def _read(function, tensors, *arguments):
    try:
        return function(tensors, *arguments)
    except KeyError as error:
        raise ValueError(f"{tensors.path} lacks {error}; the file is of another architecture or not whole.") from error
    except IndexError as error:
        raise ValueError(f"{tensors.path} holds arrays of other ranks than a Vision Transformer's.") from error
