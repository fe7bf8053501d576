"""Which layers' tensors fill the memory at the fullest moment of a compiled step, from the compiler's schedule.

The compiler does not tell; but its program names every tensor with shape, padding and layer, in the order in which they
are computed, so that the live ones can be counted. Tensors in a chip's small fast memory do not count.
"""

import math
import re
from collections import Counter

BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "f16": 16}
# What has no memory of its own: results are their operands.
ALIASES = {"bitcast", "get-tuple-element", "tuple", "opt-barrier", "while", "dynamic-update-slice"}
ALIASES |= {"copy-start", "slice-start"}
NOTHING = {"parameter", "constant", "after-all", "partition-id", "replica-id"}
LINE = re.compile(r"^ +(?:ROOT )?%(\S+) = (.+?) ([a-z][\w-]*)\((.*?)\)(?:, |$)")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::T\((\d+)(?:,(\d+))?\))?[^}]*?(?:S\((\d+)\))?\})?")
LAYER = re.compile(r'op_name="([^"]*)"')


def fullest_moment(schedule: str, count: int = 10) -> tuple[float, list[tuple[str, float]]]:
    """Bytes of the live temporary tensors at the fullest moment, and the layers that hold most of them.

    Args:
        schedule: The text of a compiled HloModule that is scheduled.
        count: Layers to name.

    Returns:
        The bytes in all, and (layer, bytes), the most first.
    """
    tensors, last_use = _read(schedule)
    ends = Counter()
    live = most = 0.0
    fullest = 0
    for number, (size, _) in enumerate(tensors):
        live += size
        if live > most:
            most, fullest = live, number
        ends[last_use.get(number, number)] += size
        live -= ends[number]
    layers = Counter()
    for number, (size, layer) in enumerate(tensors[: fullest + 1]):
        if last_use.get(number, number) >= fullest:
            layers[layer] += size
    return most, [(layer, size) for layer, size in layers.most_common(count) if size]


def layer_of(op_name: str) -> str:
    """ "vit_1/encoder_1/block_3_1/mlp_1/dense_1/Add" -> "vit/encoder/block_3/mlp"; "" without a layer."""
    parts = [part for part in op_name.split("/") if part and not part.startswith(("gradient_tape", "while", "cond"))]
    return "/".join(re.sub(r"_\d+$", "", part) for part in parts[:4][: max(1, len(parts) - 1)])


def _read(schedule):
    """(bytes, layer) of each instruction of the main computation, and the number of the last that uses it."""
    tensors, owners, last_use = [], {}, {}
    entry = schedule[schedule.index("\nENTRY ") :].splitlines()[2:]
    for line in entry:
        match = LINE.match(line)
        if not match:
            continue
        name, shape, opcode, operands = match.groups()
        number = len(tensors)
        used = set().union(*(owners.get(operand, ()) for operand in re.findall(r"%([\w.-]+)", operands)))
        for owner in used:
            last_use[owner] = number
        own = opcode not in ALIASES and opcode not in NOTHING
        found = LAYER.search(line)
        layer = layer_of(found[1]) if found else next((tensors[owner][1] for owner in sorted(used)), "")
        tensors.append((_bytes(shape) if own else 0.0, layer))
        owners[name] = used if opcode in ALIASES else {number}
        if line.lstrip().startswith("ROOT"):  # results have memory of their own, or that of what they replace
            for owner in used:
                tensors[owner] = (0.0, "")
    return tensors, last_use


def _bytes(shape):
    return sum(_padded(*match.groups()) for match in TENSOR.finditer(shape))


def _padded(dtype, sizes, order, rows, columns, space):
    """Bytes of one tensor: its two minor dimensions are filled up to whole tiles."""
    if space and space != "0":
        return 0.0
    sizes = [int(size) for size in sizes.split(",") if size]
    if order and rows:
        tile = [int(side) for side in (columns, rows) if side]
        for dimension, side in zip(order.split(","), tile):
            sizes[int(dimension)] = -(-sizes[int(dimension)] // side) * side
    bits = BITS.get(dtype) or int(re.search(r"\d+", dtype)[0]) if dtype != "token" else 0
    return math.prod(sizes) * bits / 8
