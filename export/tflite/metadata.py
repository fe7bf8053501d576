"""TFLite model metadata: what phones must know of a file, in the file. Read by MediaPipe Tasks and Android Studio.

A flatbuffer (metadata_schema.py) in a buffer of the model, and a ZIP archive behind it with labels.txt and
preprocessing.json, as https://ai.google.dev/edge/litert/models/metadata says.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.labels import LABELS
from keras_vit.export.saved_model import PREPROCESSING
from keras_vit.export.tflite.description import DescribedFile, Description
from keras_vit.export.tflite.device_form import CLASSIFY, OUTPUTS
from keras_vit.export.tflite.flatbuffer import (
    DAMAGE,
    Signature,
    check_no_folder,
    pack_model,
    put_first,
    signatures,
    unpack_model,
)
from keras_vit.export.tflite.metadata_schema import LABELS_FILE, RGB, decode_metadata, encode_metadata

ENTRY = b"TFLITE_METADATA"
# All fields used are as old as that; a reader of an older version of the schema than this one refuses the file.
MIN_PARSER_VERSION = "1.0.0"


def with_metadata(content: bytes, description: Description, first: str = CLASSIFY) -> bytes:
    """Adds metadata to a TFLite model, in place of what it has; weights and the converter's own notes stay.

    Args:
        content: A .tflite file that takes images only, (1, H, W, 3) float32 or uint8.
        description: Its labels belong to the output of the first signature.
        first: The signature that becomes the first of several, which is the one that MediaPipe runs; without one of
            this name their order stays.

    Returns:
        The bytes of the new file: the same for the same arguments.

    Raises:
        ValueError: `content` is no whole TFLite model, takes something else, has not an output for each label, or has
            more than 2 GB of weights in its flatbuffer.
    """
    try:
        model = unpack_model(content)
    except ValueError as error:
        raise ValueError(f"Metadata belongs in a TFLite model, but this is none: {error}.") from error
    put_first(model, first)
    found = {signature.subgraph: (name, signature) for name, signature in signatures(model).items()}
    if 0 not in found:
        raise ValueError(f"The first subgraph of this model has no signature, only {sorted(found)} have.")
    _check_ends(found[0][1], description)
    subgraphs = [_subgraph(*found[i], description) if i in found else {} for i in range(len(model.subgraphs))]
    _put(model, encode_metadata(_model(subgraphs, description)))
    files = {PREPROCESSING: json.dumps(description.preprocessing, indent=2) + "\n"}
    if description.labels is not None:
        files[LABELS] = "\n".join(description.labels) + "\n"
    result = io.BytesIO(pack_model(model, content))
    with zipfile.ZipFile(result, "a") as archive:  # stored as they are: readers map them from the file
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980: the same arguments give the same file
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return result.getvalue()


def read_description(path) -> DescribedFile:
    """Reads a .tflite file's signatures and metadata, without its weights.

    Raises:
        ValueError: The file is a folder, empty, no TFLite model, cut short, or has no metadata.
        FileNotFoundError: There is none.
    """
    path = check_no_folder(path)
    size_bytes = path.stat().st_size
    try:
        content = np.memmap(path, "uint8", "r") if size_bytes else b""
        model = unpack_model(content)
        places = [entry.buffer for entry in model.metadata or () if entry.name == ENTRY]
        if not places:
            raise ValueError("it has no metadata; keras_vit.export.with_metadata adds it")
        description = _read(model.buffers[places[0]].data.tobytes(), path)
        return DescribedFile(path, size_bytes, signatures(model), len(model.subgraphs), description)
    except (*DAMAGE, KeyError, zipfile.BadZipFile) as error:
        reason = error if isinstance(error, ValueError) else "it is damaged or was cut short"
        raise ValueError(f"{path} cannot be described: {reason}.") from error


def _check_ends(signature: Signature, description: Description):
    image = signature.inputs[0] if len(signature.inputs) == 1 else None
    is_image = image is not None and image.shape[:1] + image.shape[3:] == (1, 3) and image.dtype in ("float32", "uint8")
    if not is_image or len(signature.outputs) != 1:
        raise ValueError(
            "A model of images has one input (1, H, W, 3), float32 or uint8, and one output. "
            f"Received: {', '.join(map(str, signature.inputs))} -> {', '.join(map(str, signature.outputs))}"
        )
    output = signature.outputs[0]
    if description.labels is not None and len(description.labels) != output.shape[-1]:
        raise ValueError(
            f"Each output needs its label. Received: {len(description.labels)} labels for {output.shape[-1]} outputs "
            f"({output})"
        )


def _model(subgraphs: list, description: Description) -> dict:
    """Of metadata_schema.MODEL."""
    words = ("name", "description", "version", "author", "license")
    return {
        **{name: getattr(description, name) for name in words if getattr(description, name)},
        "subgraph_metadata": subgraphs,
        "associated_files": [{"name": PREPROCESSING, "description": "How images are resized, cropped and scaled."}],
        "min_parser_version": MIN_PARSER_VERSION,
    }


def _subgraph(name: str, signature: Signature, description: Description) -> dict:
    labels = description.labels if signature.subgraph == 0 else None
    return {
        **({"name": name} if name else {}),
        "input_tensor_metadata": [_image(tensor, description) for tensor in signature.inputs],
        "output_tensor_metadata": [_result(tensor, labels) for tensor in signature.outputs],
    }


def _image(tensor, description: Description) -> dict:
    mean, std = np.array(description.mean), np.array(description.std)
    if tensor.dtype != "float32":
        mean, std = mean * 0, std * 0 + 1  # a phone gives the bytes of the image: scale and zero point do the rest
    height, width = tensor.shape[1:3]
    pixels = {"color_space": RGB, "default_size": {"width": width, "height": height}}
    return {
        "name": tensor.name,
        "description": f"An RGB image of {height} x {width} pixels.",
        "content": {"content_properties": ("ImageProperties", pixels)},
        "process_units": [{"options": ("NormalizationOptions", {"mean": description.mean, "std": description.std})}],
        "stats": {"max": (255 - mean) / std, "min": (0 - mean) / std},
    }


def _result(tensor, labels) -> dict:
    values = {"name": tensor.name, "content": {"content_properties": ("FeatureProperties", {})}}
    if tensor.name == OUTPUTS[CLASSIFY]:
        values |= {"description": "The probability of each class.", "stats": {"max": [1.0], "min": [0.0]}}
    if labels is not None:
        file = {"name": LABELS, "description": "The class of each output.", "type": LABELS_FILE}
        values["associated_files"] = [file]
    return values


def _put(model: schema.ModelT, metadata: bytes):
    """In the buffer of metadata that is there, or a new one."""
    data = np.frombuffer(metadata, "uint8")
    model.metadata = model.metadata or []
    for entry in model.metadata:
        if entry.name == ENTRY:
            model.buffers[entry.buffer] = schema.BufferT(data=data)
            return
    model.metadata.append(schema.MetadataT(name=ENTRY, buffer=len(model.buffers)))
    model.buffers.append(schema.BufferT(data=data))


def _read(metadata: bytes, path: Path) -> Description:
    values = decode_metadata(metadata)
    subgraph = next(iter(values.get("subgraph_metadata", ())), {})
    (image, *_), (result, *_) = (subgraph.get(f"{side}_tensor_metadata") or [{}] for side in ("input", "output"))
    named = [file["name"] for file in result.get("associated_files", ()) if file.get("type") == LABELS_FILE]
    listed = {file["name"] for file in values.get("associated_files", ())}
    labels, preprocessing = None, {}
    if named or PREPROCESSING in listed:
        with zipfile.ZipFile(path) as archive:
            if named:
                labels = tuple(archive.read(named[0]).decode().splitlines())
            if PREPROCESSING in listed:
                preprocessing = json.loads(archive.read(PREPROCESSING))
    units = [unit.get("options") for unit in image.get("process_units", ())]
    scaling = next((options for kind, options in filter(None, units) if kind == "NormalizationOptions"), {})
    words = {name: values.get(name, "") for name in ("name", "description", "version", "author", "license")}
    return Description(**words, **scaling, labels=labels, preprocessing=preprocessing)
