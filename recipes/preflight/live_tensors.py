"""The largest live tensors of a compiled step, by layer, from the compiler's schedule.

The compiler does not report them. But its scheduled program lists every tensor with shape, padding and layer in order
of execution, so liveness can be computed. Tensors in a chip's small fast memory do not count.
"""

import math
import re
from collections import Counter

BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "f16": 16}
# Instructions whose results share the memory of their operands.
ALIASES = {"bitcast", "get-tuple-element", "tuple", "opt-barrier", "while", "dynamic-update-slice"}
ALIASES |= {"copy-start", "slice-start"}
WITHOUT_MEMORY = {"parameter", "constant", "after-all", "partition-id", "replica-id"}
LINE = re.compile(r"^ +(?:ROOT )?%(\S+) = (.+?) ([a-z][\w-]*)\((.*?)\)(?:, |$)")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::T\((\d+)(?:,(\d+))?\))?[^}]*?(?:S\((\d+)\))?\})?")
LAYER = re.compile(r'op_name="([^"]*)"')


def peak_live_tensors(schedule: str, count: int = 10) -> tuple[float, list[tuple[str, float]]]:
    """Peak memory of the live temporary tensors, and the layers that own most of it.

    Args:
        schedule: Text of a compiled, scheduled HloModule.
        count: Largest number of layers to return.

    Returns:
        Bytes at the peak, and pairs (layer, bytes), largest first.
    """
    tensors, last_use = _read_schedule(schedule)
    freed: Counter = Counter()  # bytes by the instruction that uses a tensor last
    live = peak = 0.0
    peak_at = 0
    for number, (size, _) in enumerate(tensors):
        live += size
        if live > peak:
            peak, peak_at = live, number
        freed[last_use.get(number, number)] += size
        live -= freed[number]
    layers: Counter = Counter()
    for number, (size, layer) in enumerate(tensors[: peak_at + 1]):
        if last_use.get(number, number) >= peak_at:
            layers[layer] += size
    return peak, [(layer, size) for layer, size in layers.most_common(count) if size]


def layer_name(op_name: str) -> str:
    """ "vit_1/encoder_1/block_3_1/mlp_1/dense_1/Add" -> "vit/encoder/block_3/mlp"; "" without a layer."""
    parts = [part for part in op_name.split("/") if part and not part.startswith(("gradient_tape", "while", "cond"))]
    return "/".join(re.sub(r"_\d+$", "", part) for part in parts[:4][: max(1, len(parts) - 1)])


def _read_schedule(schedule):
    """(bytes, layer) of each instruction of the entry computation, and the number of its last user."""
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
        allocates = opcode not in ALIASES and opcode not in WITHOUT_MEMORY
        found = LAYER.search(line)
        layer = layer_name(found[1]) if found else next((tensors[owner][1] for owner in sorted(used)), "")
        tensors.append((_bytes(shape) if allocates else 0.0, layer))
        owners[name] = used if opcode in ALIASES else {number}
        if line.lstrip().startswith("ROOT"):  # outputs are not temporaries
            for owner in used:
                tensors[owner] = (0.0, "")
    return tensors, last_use


def _bytes(shape):
    return sum(_padded_bytes(*match.groups()) for match in TENSOR.finditer(shape))


def _padded_bytes(dtype, sizes, order, rows, columns, space):
    """Bytes of one tensor, its two minor dimensions padded to whole tiles."""
    if space and space != "0":
        return 0.0
    sizes = [int(size) for size in sizes.split(",") if size]
    if order and rows:
        tile = [int(side) for side in (columns, rows) if side]
        for dimension, side in zip(order.split(","), tile):
            sizes[int(dimension)] = -(-sizes[int(dimension)] // side) * side
    bits = BITS.get(dtype) or int(re.search(r"\d+", dtype)[0]) if dtype != "token" else 0
    return math.prod(sizes) * bits / 8
