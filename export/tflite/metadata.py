"""Writes and reads TFLite model metadata, which MediaPipe Tasks and Android Studio use.

A flatbuffer (metadata_schema.py) in a buffer of the model, and a ZIP archive after it with labels.txt and
preprocessing.json, as specified in https://ai.google.dev/edge/litert/models/metadata.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.class_names import class_names_text
from keras_vit.export.names import CLASS_NAMES_FILE, CLASSIFY, OUTPUTS, PREPROCESSING_FILE
from keras_vit.export.tflite.description import UNDESCRIBED, DescribedFile, Description
from keras_vit.export.tflite.flatbuffer import (
    DAMAGE,
    MIN_RUNTIME,
    Signature,
    check_not_folder,
    move_to_front,
    pack_model,
    read_signatures,
    unpack_model,
)
from keras_vit.export.tflite.metadata_schema import GRAYSCALE, RGB, TENSOR_AXIS_LABELS, decode_metadata, encode_metadata

ENTRY = b"TFLITE_METADATA"
# First version of the schema with all fields used here; readers of an older version reject the file.
MIN_PARSER_VERSION = "1.0.0"


def with_metadata(content: bytes, description: Description, first: str = CLASSIFY) -> bytes:
    """Adds metadata to a TFLite model, or replaces it; weights and the converter's own metadata are unchanged.

    Args:
        content: A .tflite file whose input is an image, (1, H, W, 3) float32 or uint8.
        description: The metadata; the class names belong to the output of the first signature.
        first: The signature to move to the front, which is the one that MediaPipe runs; without one of this name the
            order is unchanged.

    Returns:
        The bytes of the new file: the same for the same arguments.

    Raises:
        ValueError: `content` is not a complete TFLite model, has other inputs, has a different number of outputs and
            class names, or has more than 2 GB of weights in its flatbuffer.
    """
    try:
        model = unpack_model(content)
    except ValueError as error:
        raise ValueError(f"Metadata can be added to a TFLite model only: {error}.") from error
    return pack_with_metadata(model, description, first)


def pack_with_metadata(model: schema.ModelT, description: Description, first: str) -> bytes:
    """`with_metadata` of a model of `unpack_model`, which is changed."""
    move_to_front(model, first)
    signatures = {signature.subgraph: (name, signature) for name, signature in read_signatures(model).items()}
    if 0 not in signatures:
        raise ValueError(
            f"The first subgraph has no signature. Received: signatures of the subgraphs {sorted(signatures)}"
        )
    _check_tensors(signatures[0][1], description)
    subgraphs = [_subgraph(*signatures[i], description) if i in signatures else {} for i in range(len(model.subgraphs))]
    _store(model, encode_metadata(_model(subgraphs, description)))
    files = {PREPROCESSING_FILE: json.dumps(description.preprocessing, indent=2) + "\n"}
    if description.class_names is not None:
        files[CLASS_NAMES_FILE] = class_names_text(description.class_names)
    result = io.BytesIO(pack_model(model))
    with zipfile.ZipFile(result, "a") as archive:  # uncompressed: readers map them from the file
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # dated 1980: the same arguments produce the same bytes
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return result.getvalue()


def read_description(path) -> DescribedFile:
    """Reads the signatures and metadata of a .tflite file, without its weights; without metadata an empty description.

    Raises:
        ValueError: The file is a folder, empty, not a TFLite model, or truncated.
        FileNotFoundError: The file does not exist.
    """
    path = check_not_folder(path)
    size_bytes = path.stat().st_size
    try:
        content = np.memmap(path, "uint8", "r") if size_bytes else b""
        model = unpack_model(content)
        buffers = [entry.buffer for entry in model.metadata or () if entry.name == ENTRY]
        description = _read(model.buffers[buffers[0]].data.tobytes(), path) if buffers else UNDESCRIBED
        stated = [model.buffers[entry.buffer].data for entry in model.metadata or () if entry.name == MIN_RUNTIME]
        runtime = bytes(stated[0]).rstrip(b"\0").decode() if stated else ""
        return DescribedFile(path, size_bytes, read_signatures(model), len(model.subgraphs), description, runtime)
    except (*DAMAGE, KeyError, zipfile.BadZipFile) as error:
        reason = error if isinstance(error, ValueError) else "it is damaged or truncated"
        raise ValueError(f"{path} cannot be described: {reason}.") from error


def _check_tensors(signature: Signature, description: Description):
    image = signature.inputs[0] if len(signature.inputs) == 1 else None
    is_image = image is not None and image.shape[3:] in ((3,), (1,)) and image.dtype in ("float32", "uint8")
    if not is_image or signature.inputs[0].shape[0] < 1 or len(signature.outputs) != 1:
        raise ValueError(
            "Expected one input (B, H, W, 3), or (B, H, W, 1) for gray, float32 or uint8, and one output. "
            f"Received: {', '.join(map(str, signature.inputs))} -> {', '.join(map(str, signature.outputs))}"
        )
    output = signature.outputs[0]
    if description.class_names is not None and len(description.class_names) != output.shape[-1]:
        raise ValueError(
            f"Expected one class name per output. Received: {len(description.class_names)} names for "
            f"{output.shape[-1]} outputs ({output})"
        )


def _model(subgraphs: list, description: Description) -> dict:
    """Values of `metadata_schema.MODEL`."""
    texts = ("name", "description", "version", "author", "license")
    return {
        **{name: getattr(description, name) for name in texts if getattr(description, name)},
        "subgraph_metadata": subgraphs,
        "associated_files": [{"name": PREPROCESSING_FILE, "description": "Resizing, cropping and scaling of images."}],
        "min_parser_version": MIN_PARSER_VERSION,
    }


def _subgraph(name: str, signature: Signature, description: Description) -> dict:
    class_names = description.class_names if signature.subgraph == 0 else None
    return {
        **({"name": name} if name else {}),
        "input_tensor_metadata": [_input(tensor, description) for tensor in signature.inputs],
        "output_tensor_metadata": [_output(tensor, class_names) for tensor in signature.outputs],
    }


def _input(tensor, description: Description) -> dict:
    mean, std = np.array(description.mean), np.array(description.std)
    if tensor.dtype != "float32":
        mean, std = mean * 0, std * 0 + 1  # the app feeds uint8 pixels; the tensor has scale and zero point
    height, width, channels = tensor.shape[1:]
    pixels = {"color_space": RGB if channels == 3 else GRAYSCALE, "default_size": {"width": width, "height": height}}
    return {
        "name": tensor.name,
        "description": f"{'An RGB' if channels == 3 else 'A gray'} image of {height} x {width} pixels.",
        "content": {"content_properties": ("ImageProperties", pixels)},
        "process_units": [{"options": ("NormalizationOptions", {"mean": description.mean, "std": description.std})}],
        "stats": {"max": (255 - mean) / std, "min": (0 - mean) / std},
    }


def _output(tensor, class_names) -> dict:
    values = {"name": tensor.name, "content": {"content_properties": ("FeatureProperties", {})}}
    if tensor.name == OUTPUTS[CLASSIFY]:
        values |= {"description": "The probability of each class.", "stats": {"max": [1.0], "min": [0.0]}}
    if class_names is not None:
        file = {"name": CLASS_NAMES_FILE, "description": "The class of each output.", "type": TENSOR_AXIS_LABELS}
        values["associated_files"] = [file]
    return values


def _store(model: schema.ModelT, metadata: bytes):
    """Writes into the existing metadata buffer, or a new one."""
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
    subgraph: dict = next(iter(values.get("subgraph_metadata", ())), {})
    (image, *_), (output, *_) = (subgraph.get(f"{side}_tensor_metadata") or [{}] for side in ("input", "output"))
    name_files = [file["name"] for file in output.get("associated_files", ()) if file.get("type") == TENSOR_AXIS_LABELS]
    files = {file["name"] for file in values.get("associated_files", ())}
    class_names, preprocessing = None, {}
    if name_files or PREPROCESSING_FILE in files:
        with zipfile.ZipFile(path) as archive:
            if name_files:
                class_names = tuple(archive.read(name_files[0]).decode().splitlines())
            if PREPROCESSING_FILE in files:
                preprocessing = json.loads(archive.read(PREPROCESSING_FILE))
    units = [unit.get("options") for unit in image.get("process_units", ())]
    scaling: dict = next((options for kind, options in filter(None, units) if kind == "NormalizationOptions"), {})
    texts = {name: values.get(name, "") for name in ("name", "description", "version", "author", "license")}
    return Description(**texts, **scaling, class_names=class_names, preprocessing=preprocessing)
