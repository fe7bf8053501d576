"""The tables of TensorFlow Lite's metadata_schema.fbs (version 1.5.0), encoded and decoded with flatbuffers.

A table is a tuple of (field, type) in the order of that file, which numbers the fields. A type is "string", "byte",
"uint", "floats" (a vector), a table, a list with one table (a vector of tables), or a dict of (number, table) per name
(a union, whose values are (name, table) pairs). Fields after those listed here are neither written nor read.
"""

import flatbuffers
import numpy as np
from flatbuffers import number_types
from flatbuffers.table import Table

IDENTIFIER = b"M001"
TENSOR_AXIS_LABELS, RGB, GRAYSCALE = 2, 1, 2  # AssociatedFileType.TENSOR_AXIS_LABELS, ColorSpaceType

ASSOCIATED_FILE = (("name", "string"), ("description", "string"), ("type", "byte"))
IMAGE_PROPERTIES = (("color_space", "byte"), ("default_size", (("width", "uint"), ("height", "uint"))))
CONTENT = (("content_properties", {"FeatureProperties": (1, ()), "ImageProperties": (2, IMAGE_PROPERTIES)}),)
NORMALIZATION = (("mean", "floats"), ("std", "floats"))
PROCESS_UNIT = (("options", {"NormalizationOptions": (1, NORMALIZATION)}),)
TENSOR = (
    ("name", "string"),
    ("description", "string"),
    ("dimension_names", None),
    ("content", CONTENT),
    ("process_units", [PROCESS_UNIT]),
    ("stats", (("max", "floats"), ("min", "floats"))),
    ("associated_files", [ASSOCIATED_FILE]),
)
SUBGRAPH = (
    ("name", "string"),
    ("description", "string"),
    ("input_tensor_metadata", [TENSOR]),
    ("output_tensor_metadata", [TENSOR]),
)
MODEL = (
    ("name", "string"),
    ("description", "string"),
    ("version", "string"),
    ("subgraph_metadata", [SUBGRAPH]),
    ("author", "string"),
    ("license", "string"),
    ("associated_files", [ASSOCIATED_FILE]),
    ("min_parser_version", "string"),
)
NUMBERS = {"byte": number_types.Int8Flags, "uint": number_types.Uint32Flags}


def encode_metadata(values: dict) -> bytes:
    """The flatbuffer of a `MODEL` table: field -> string, number, list, or dict of a nested table."""
    builder = flatbuffers.Builder()
    builder.Finish(_encode(builder, MODEL, values), IDENTIFIER)
    return bytes(builder.Output())


def decode_metadata(content: bytes) -> dict:
    """The inverse of `encode_metadata`; fields that are not in the flatbuffer are omitted."""
    if content[4:8] != IDENTIFIER:
        raise ValueError(f"its metadata has the identifier {content[4:8]!r}, not {IDENTIFIER!r}")
    root = Table(content, 0)
    root.Pos = root.Indirect(0)
    return _decode(root, MODEL)


def _encode(builder, fields, values) -> int:
    """Writes a table after the objects that it refers to; returns its offset."""
    slots, number = [], 0
    for name, kind in fields:
        value = values.get(name)
        if isinstance(kind, dict):
            if value is not None:
                type_number, table = kind[value[0]]
                slots.append((number, "byte", type_number))
                slots.append((number + 1, "offset", _encode(builder, table, value[1])))
            number += 1  # a union has two field numbers: type and value
        elif value is not None and isinstance(kind, str) and kind in NUMBERS:
            slots.append((number, kind, value))
        elif value is not None:
            slots.append((number, "offset", _encode_object(builder, kind, value)))
        number += 1
    builder.StartObject(number)
    for slot, kind, value in slots:
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            builder.PrependSlot(NUMBERS[kind], slot, value, 0)
    return builder.EndObject()


def _encode_object(builder, kind, value) -> int:
    if kind == "string":
        return builder.CreateString(value)
    if kind == "floats":
        return builder.CreateNumpyVector(np.asarray(value, "<f4"))
    if isinstance(kind, tuple):
        return _encode(builder, kind, value)
    offsets = [_encode(builder, kind[0], item) for item in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def _decode(table: Table, fields) -> dict:
    values: dict = {}
    slot = 4  # a vtable begins with two 16-bit sizes
    for name, kind in fields:
        offset = table.Offset(slot)
        if isinstance(kind, dict):
            chosen = table.Get(NUMBERS["byte"], table.Pos + offset) if offset else 0
            slot += 2
            offset = table.Offset(slot)
            for type_name, (type_number, inner) in kind.items():
                if offset and chosen == type_number:
                    union = Table(table.Bytes, table.Indirect(table.Pos + offset))
                    values[name] = (type_name, _decode(union, inner))
        elif offset and kind is not None:
            values[name] = _decode_field(table, offset, kind)
        slot += 2
    return values


def _decode_field(table: Table, offset: int, kind):
    if isinstance(kind, str) and kind in NUMBERS:
        return table.Get(NUMBERS[kind], table.Pos + offset)
    if kind == "string":
        return table.String(table.Pos + offset).decode()
    if isinstance(kind, tuple):
        return _decode(Table(table.Bytes, table.Indirect(table.Pos + offset)), kind)
    start, length = table.Vector(offset), table.VectorLen(offset)
    if kind == "floats":
        return np.frombuffer(table.Bytes, "<f4", length, start).tolist()
    return [_decode(Table(table.Bytes, table.Indirect(start + 4 * i)), kind[0]) for i in range(length)]
