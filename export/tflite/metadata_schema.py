"""Tables of TensorFlow Lite's metadata_schema.fbs (version 1.5.0), written and read with the flatbuffers library.

A table's fields stand in the order of that file, which gives them their numbers. The kind of a field is "string",
"byte", "uint", "floats" (a vector), a table (a tuple), a list of one table (a vector of tables), or a dict of type
numbers and tables (a union; its values are pairs of the type's name and the table). Fields after those named here are
neither written nor read.
"""

import flatbuffers
import numpy as np
from flatbuffers import number_types
from flatbuffers.table import Table

IDENTIFIER = b"M001"
LABELS_FILE, RGB = 2, 1  # AssociatedFileType.TENSOR_AXIS_LABELS, ColorSpaceType.RGB

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
    """The flatbuffer of a `MODEL` table: names of fields to strings, numbers, lists, or dicts of the same kind."""
    builder = flatbuffers.Builder()
    builder.Finish(_encode(builder, MODEL, values), IDENTIFIER)
    return bytes(builder.Output())


def decode_metadata(content: bytes) -> dict:
    """What `encode_metadata` was given; fields that are not in the flatbuffer are left out.

    Raises:
        ValueError: The bytes are no such flatbuffer.
    """
    if content[4:8] != IDENTIFIER:
        raise ValueError(f"its metadata has the identifier {content[4:8]!r} instead of {IDENTIFIER!r}")
    root = Table(content, 0)
    root.Pos = root.Indirect(0)
    return _decode(root, MODEL)


def _encode(builder, fields, values) -> int:
    """Writes a table, what it points to first; returns its place."""
    unknown = set(values) - {name for name, _ in fields}
    if unknown:
        raise ValueError(f"No fields of this table: {', '.join(sorted(unknown))}")
    slots, number = [], 0
    for name, kind in fields:
        value = values.get(name)
        if isinstance(kind, dict):
            if value is not None:
                type_number, table = kind[value[0]]
                slots.append((number, "byte", type_number))
                slots.append((number + 1, "offset", _encode(builder, table, value[1])))
            number += 1  # a union takes two numbers: its type, its value
        elif value is not None and isinstance(kind, str) and kind in NUMBERS:
            slots.append((number, kind, value))
        elif value is not None:
            slots.append((number, "offset", _encode_pointed_to(builder, kind, value)))
        number += 1
    builder.StartObject(number)
    for slot, kind, value in slots:
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            builder.PrependSlot(NUMBERS[kind], slot, value, 0)
    return builder.EndObject()


def _encode_pointed_to(builder, kind, value) -> int:
    if kind == "string":
        return builder.CreateString(value)
    if kind == "floats":
        return builder.CreateNumpyVector(np.asarray(value, "<f4"))
    if isinstance(kind, tuple):
        return _encode(builder, kind, value)
    places = [_encode(builder, kind[0], item) for item in value]
    builder.StartVector(4, len(places), 4)
    for place in reversed(places):
        builder.PrependUOffsetTRelative(place)
    return builder.EndVector()


def _decode(table: Table, fields) -> dict:
    values, slot = {}, 4  # the first two of a virtual table's 16-bit numbers are sizes
    for name, kind in fields:
        place = table.Offset(slot)
        if isinstance(kind, dict):
            chosen = table.Get(NUMBERS["byte"], table.Pos + place) if place else 0
            slot += 2
            place = table.Offset(slot)
            for type_name, (type_number, inner) in kind.items():
                if place and chosen == type_number:
                    pointed_to = Table(table.Bytes, table.Indirect(table.Pos + place))
                    values[name] = (type_name, _decode(pointed_to, inner))
        elif place and kind is not None:
            values[name] = _decode_field(table, place, kind)
        slot += 2
    return values


def _decode_field(table: Table, place: int, kind):
    if isinstance(kind, str) and kind in NUMBERS:
        return table.Get(NUMBERS[kind], table.Pos + place)
    if kind == "string":
        return table.String(table.Pos + place).decode()
    if isinstance(kind, tuple):
        return _decode(Table(table.Bytes, table.Indirect(table.Pos + place)), kind)
    start, length = table.Vector(place), table.VectorLen(place)
    if kind == "floats":
        return np.frombuffer(table.Bytes, "<f4", length, start).tolist()
    return [_decode(Table(table.Bytes, table.Indirect(start + 4 * i)), kind[0]) for i in range(length)]
