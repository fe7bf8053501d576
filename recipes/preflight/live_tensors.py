"""The largest live tensors of a compiled step, by layer, from the compiler's schedule.

The compiler does not report them. But its scheduled program lists every tensor with shape, padding and layer in order
of execution, so liveness can be computed. Tensors in a chip's small fast memory do not count.
"""

import math
import re
from collections import Counter, defaultdict

BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "f16": 16}
# Instructions whose results share the memory of their operands.
ALIASES = {"bitcast", "get-tuple-element", "tuple", "opt-barrier", "while", "dynamic-update-slice"}
ALIASES |= {"copy-start", "slice-start"}
WITHOUT_MEMORY = {"parameter", "constant", "after-all", "partition-id", "replica-id"}
LINE = re.compile(r"^ +(?:ROOT )?%(\S+) = (.+?) ([a-z][\w-]*)\((.*?)\)(?:, |$)")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::T\((\d+)(?:,(\d+))?\))?[^}]*?(?:S\((\d+)\))?\})?")
# Beginnings of parts of TensorFlow's names that are no layers.
LOOPS_AND_CALLS = ("gradient_tape", "while", "cond", "body", "Stateful")
# Parts of JAX's names that are no layers.
JAX_PARTS = {"while", "body", "cond", "closed_call", "checkpoint", "rematted_computation"}
LAYER = re.compile(r'op_name="([^"]*)"')


def peak_live_tensors(schedule: str) -> tuple[float, list[tuple[str, float]]]:
    """Peak memory of the live temporary tensors, and the ten layers that own most of it."""
    layers = _peak(schedule, schedule[schedule.index("\nENTRY ") + 1 :])
    return float(sum(layers.values())), [(layer, size) for layer, size in layers.most_common(10) if size]


def layer_name(op_name: str) -> str:
    """ "vit_1/encoder_1/block_3_1/mlp_1/dense_1/Add" -> "vit/encoder/block_3/mlp"; "" without a layer.

    With Keras on JAX, "jit(train_step)/transpose(jvp(encoder))/block_3/mlp/dense/add" -> "encoder/block_3/mlp".
    """
    *parts, _ = op_name.split("/") if "/" in op_name else (op_name, "")
    if op_name.startswith("jit("):
        parts = [part[part.rfind("(") + 1 :].rstrip(")") for part in parts if not part.startswith("jit(")]
        return "/".join([part for part in parts if part and part not in JAX_PARTS][:3])
    parts = [part for part in parts if part and not part.startswith(LOOPS_AND_CALLS)]
    return "/".join(re.sub(r"_\d+$", "", part) for part in parts[:4])


def _peak(schedule, text) -> Counter:
    """Bytes by layer at the peak of the first computation of `text`, with the peaks of the loops that it runs."""
    tensors, last_use, loops = _read_computation(text[: text.index("\n}")])
    created, freed = defaultdict(list), defaultdict(list)  # tensors by number of an instruction
    for tensor, (_, _, number) in enumerate(tensors):
        created[number].append(tensor)
        freed[last_use.get(tensor, number)].append(tensor)
    live: Counter = Counter()
    peak: Counter = Counter()
    for number in sorted(created | freed | loops):
        for size, layer, _ in map(tensors.__getitem__, created[number]):
            live[layer] += size
        now = live
        if number in loops:
            now = live + _peak(schedule, schedule[schedule.index(f"\n%{loops[number]} (") + 1 :])
        if sum(now.values()) > sum(peak.values()):
            peak = now.copy()
        for size, layer, _ in map(tensors.__getitem__, freed[number]):
            live[layer] -= size
    return peak


def _read_computation(text):
    """(bytes, layer, number of the instruction) of each tensor, the number of its last user, and bodies of loops.

    An instruction with several results has several tensors, each with its own last user.
    """
    tensors, results, last_use, loops = [], {}, {}, {}
    for number, match in enumerate(filter(None, map(LINE.match, text.splitlines()[1:]))):
        name, shape, opcode, operands = match.groups()
        inputs = [results.get(operand, [set()]) for operand in re.findall(r"%([\w.-]+)", operands)]
        if opcode == "get-tuple-element" and len(inputs[0]) > 1:
            inputs = [[inputs[0][int(re.search(r"index=(\d+)", match.string)[1])]]]
        used = {tensor for value in inputs for part in value for tensor in part}
        last_use |= dict.fromkeys(used, number)
        op_name = LAYER.search(match.string)
        own = layer_name(op_name[1]) if op_name else ""
        for tensor in used:
            size, layer, creator = tensors[tensor]
            tensors[tensor] = (size, layer or own, creator)
        layer = own or next((tensors[tensor][1] for tensor in sorted(used)), "")
        if opcode == "while":
            loops[number] = re.search(r"body=%([\w.-]+)", match.string)[1]
        if opcode in ALIASES or opcode in WITHOUT_MEMORY:
            results[name] = _aliased(opcode, inputs)
        else:
            parts = [_padded_bytes(*part.groups()) for part in TENSOR.finditer(shape)]
            results[name] = [{len(tensors) + i} for i in range(len(parts))]
            tensors += [(size, layer, number) for size in parts]
        if match.string.lstrip().startswith("ROOT"):  # outputs are not temporaries
            for tensor in set().union(*results[name]):
                tensors[tensor] = (0.0, *tensors[tensor][1:])
    return tensors, last_use, loops


def _aliased(opcode, inputs):
    """The tensors whose memory the results of an instruction share, by result."""
    if opcode == "tuple":
        return [set().union(*value) for value in inputs]
    if opcode in ("while", "opt-barrier"):
        return inputs[0]
    return [set().union(*(part for value in inputs for part in value))]


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
