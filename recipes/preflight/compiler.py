"""The TPU's compiler, called without a TPU. All private names of jax and libtpu that are used are in this file.

`jax.experimental.topologies` describes a slice that is not attached; the client of its devices compiles for it.
`compile_steps.py` runs this file as a program, because its environment would harm TensorFlow or an attached TPU.
"""

import functools
import importlib.metadata
import json
import re
import sys
from pathlib import Path

import numpy as np

TESTED_VERSIONS = {"jax": "0.10", "jaxlib": "0.10", "libtpu": "0.0"}


def check_versions() -> dict[str, str]:
    """Returns the versions of jax, jaxlib and libtpu."""
    versions = {}
    for package, tested in TESTED_VERSIONS.items():
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise ImportError(f"Preflight requires {package}: pip install 'vit-for-keras[preflight]'") from error
        if not f"{versions[package]}.".startswith(f"{tested}."):
            raise ImportError(
                f"Preflight calls private functions of {package} and was tested with {tested}. Found: "
                f"{versions[package]}. In a separate environment: pip install 'vit-for-keras[preflight]'"
            )
    return versions


def compile_program(hlo: bytes, topology: str, replicas: int, partitioned: bool = False) -> dict:
    """Compiles a program for a slice of a TPU.

    The program is of `replicas` devices, all of the slice or one: that of each, or, if `partitioned`, that of all of
    them with shardings, see `HloProgram`.

    Returns:
        "memory": bytes by kind; "flops" and "bytes" (accessed): per step and device, as counted by the compiler, times
        `loop_factors`; "schedule": the compiled program as text, in order of execution. Or "error": the compiler's
        message.
    """
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    devices = _devices(topology)[:replicas]
    options = xla_client.CompileOptions()
    assignment = np.array([[device.id] for device in devices])  # (replicas, partitions)
    options.num_replicas, options.num_partitions = (1, replicas) if partitioned else (replicas, 1)
    options.executable_build_options.use_spmd_partitioning = partitioned
    options.device_assignment = xla_client.DeviceAssignment.create(assignment.T if partitioned else assignment)
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        _adapt_to_tpu(module.operation)
        try:
            compiled = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
        except _jax.JaxRuntimeError as error:
            return {"error": str(error)}
    memory, costs = compiled.get_compiled_memory_stats(), compiled.cost_analysis()
    kinds = ("argument", "output", "alias", "temp", "generated_code")
    schedule = compiled.hlo_modules()[0].to_string()
    flops, accessed = loop_factors(schedule)
    return {
        "memory": {kind: getattr(memory, f"{kind}_size_in_bytes") for kind in kinds},
        "flops": costs["flops"] * flops,
        "bytes": costs["bytes accessed"] * accessed,
        "schedule": schedule,
    }


def loop_factors(schedule: str) -> tuple[float, float]:
    """Operations and bytes accessed with all iterations of loops, divided by XLA's count, which has one of each."""
    from jaxlib import _jax, xla_client

    starts = re.finditer(r"^(?:ENTRY )?%([\w.-]+) \(", schedule, re.MULTILINE)
    computations = {match[1]: (match.start(), schedule.index("\n}", match.start()) + 3) for match in starts}
    title = schedule.partition(",")[0] + ", is_scheduled=true\n\n"
    begin, client = min(start for start, _ in computations.values()), xla_client.make_cpu_client()

    @functools.cache
    def costs(name):
        """Those with one iteration, and with all."""
        start, end = computations[name]
        body = schedule[start:end].removeprefix("ENTRY ")
        module = xla_client.hlo.hlo_module_from_text(f"{title}{schedule[begin:start]}ENTRY {body}")
        counted = _jax.hlo_module_cost_analysis(client, module)
        one = total = np.array([counted["flops"], counted["bytes accessed"]])
        for condition, inner in re.findall(r" while\(.*?condition=%([\w.-]+), body=%([\w.-]+)", body):
            inner_one, inner_total = costs(inner)
            total = total + _iterations(schedule[slice(*computations[condition])]) * inner_total - inner_one
        return one, total

    if " while(" not in schedule:
        return 1.0, 1.0
    one, total = costs(next(name for name, (start, _) in computations.items() if schedule.startswith("ENTRY", start)))
    return tuple((total / one).tolist())


def _iterations(condition):
    """Of a loop that counts from 0 with this condition."""
    constants = dict(re.findall(r"%([\w.-]+) = s32\[\]\S* constant\((\d+)\)", condition))
    limit = re.search(r"ROOT .* compare\(%[\w.-]+, %([\w.-]+)\), direction=LT", condition)
    return int(constants.get(limit[1], 1)) if limit else 1


def _devices(topology):
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies

    # A single chip: the slice of one host, of which one chip is used.
    name, sides = topology.split(":")
    sides = {"1": "2x2x1" if name in ("v4", "v5p") else "2x2"}.get(sides, sides)
    try:
        return topologies.get_topology_desc(f"{name}:{sides}", "tpu").devices
    except JaxRuntimeError as error:
        if "INVALID_ARGUMENT" not in str(error):
            raise
        raise ValueError(f"libtpu has no topology {topology!r}: {str(error).splitlines()[0]}") from error


def _adapt_to_tpu(operation):
    """Undoes two things that TensorFlow's bridge does when lowering for CPUs.

    It leaves `mhlo.copy`, a no-op that the TPU's compiler rejects. And it expands random numbers to Philox, a long
    computation, where for a TPU it uses the device's default algorithm, a single instruction.
    """
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                _adapt_to_tpu(inner.operation)
                if inner.operation.name == "mhlo.copy":
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()
                elif inner.operation.name == "stablehlo.rng_bit_generator":
                    _use_default_rng(inner.operation)


def _use_default_rng(philox):
    """Replaces a Philox draw by the device's default algorithm, seeded with the seed itself, not Philox's state."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    state, bits = philox.results
    with ir.InsertionPoint(philox), philox.location:
        short, rest = (stablehlo.slice(philox.operands[0], [i], [j], [1]) for i, j in ((0, 2), (2, 3)))
        key = _seed(philox.operands[0])
        if key is not None:
            key = stablehlo.reshape(rest.type, key)
            zero = stablehlo.constant(ir.DenseElementsAttr.get(np.zeros(1, np.uint64), type=rest.type.element_type))
            short = stablehlo.concatenate([key, zero], 0)
            rest = key
        algorithm = stablehlo.RngAlgorithmAttr.get("DEFAULT")
        new_state, new_bits = stablehlo.rng_bit_generator(short.type, bits.type, algorithm, short)
        state.replace_all_uses_with(stablehlo.concatenate([new_state, rest], 0))
    bits.replace_all_uses_with(new_bits)
    philox.erase()


def _seed(state):
    """The 64-bit seed from which TensorFlow computes the Philox state; None if it is not found.

    The two halves of the seed are signed, everything computed from them is unsigned. The first `or` of unsigned values
    joins the halves.
    """
    seen, left = set(), [state]
    while left:
        owner = left.pop().owner
        unsigned = [value for value in getattr(owner, "operands", ()) if "ui" in str(value.type)]
        if owner in seen or not unsigned:
            continue
        seen.add(owner)
        left.extend(unsigned)
    first = None
    for owner in seen:
        if owner.name == "stablehlo.or" and (first is None or owner.operation.is_before_in_block(first)):
            first = owner.operation
    return first and first.results[0]


def _peak_memory():
    """Peak resident memory of this process in bytes. `resource.getrusage` would include the parent's."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def main(folder: str):
    """Compiles program.hlo for the topology in job.json; writes result.json and schedule.txt into the same folder."""
    place = Path(folder)
    job = json.loads((place / "job.json").read_text())
    result = compile_program((place / "program.hlo").read_bytes(), **job)
    (place / "schedule.txt").write_text(result.pop("schedule", ""))
    result["peak_memory"] = _peak_memory()
    (place / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
