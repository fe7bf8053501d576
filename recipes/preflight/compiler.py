"""The TPU's compiler, called without a TPU: every private name of jax and libtpu that we use is in this file.

`jax.experimental.topologies` describes a slice that is not there; its devices' client compiles for it. `process.py`
runs this file as a program, in an environment that would do harm to one that uses TensorFlow or a TPU.
"""

import importlib.metadata
import json
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np

WRITTEN_FOR = {"jax": "0.10", "jaxlib": "0.10", "libtpu": "0.0"}


def check_versions() -> dict[str, str]:
    """Versions of the packages that compile.

    Raises:
        ImportError: One is missing, or another than this file was written for.
    """
    versions = {}
    for package, wanted in WRITTEN_FOR.items():
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise ImportError(f"Preflight needs {package}: pip install 'keras_vit[preflight]'") from error
        if not f"{versions[package]}.".startswith(f"{wanted}."):
            raise ImportError(
                f"Preflight calls functions of {package} that are not public and was written for {wanted}. Found: "
                f"{versions[package]}. In an environment of its own: pip install 'keras_vit[preflight]'"
            )
    return versions


def compile_program(hlo: bytes, topology: str, replicas: int) -> dict:
    """Compiles a program for a slice of a TPU.

    Args:
        hlo: A serialized HloModuleProto, as TensorFlow's `experimental_get_compiler_ir` gives it.
        topology: Such as "v5e:2x4".
        replicas: Devices that run the program together; all of the slice, or 1.

    Returns:
        "memory": bytes by kind; "flops", "bytes": of a step on a device, as the compiler counts them; "schedule": the
        compiled program as text, in the order in which it runs. Or "error": the compiler's reason.

    Raises:
        ValueError: The topology is not one of libtpu's.
    """
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    devices = _devices(topology)[:replicas]
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id] for device in devices]))
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        _as_lowered_for_tpus(module.operation)
        try:
            compiled = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
        except _jax.JaxRuntimeError as error:
            return {"error": str(error)}
    memory, costs = compiled.get_compiled_memory_stats(), compiled.cost_analysis()
    kinds = ("argument", "output", "alias", "temp", "generated_code")
    return {
        "memory": {kind: getattr(memory, f"{kind}_size_in_bytes") for kind in kinds},
        "flops": costs["flops"],
        "bytes": costs["bytes accessed"],
        "schedule": compiled.hlo_modules()[0].to_string(),
    }


def _devices(topology):
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies

    # One chip: a slice of a host, of which one is used.
    name, sides = topology.split(":")
    whole = {"1": "2x2x1" if name in ("v4", "v5p") else "2x2"}.get(sides, sides)
    try:
        return topologies.get_topology_desc(f"{name}:{whole}", "tpu").devices
    except JaxRuntimeError as error:
        if "INVALID_ARGUMENT" not in str(error):
            raise
        raise ValueError(f"libtpu has no topology {topology!r}: {str(error).splitlines()[0]}") from error


def _as_lowered_for_tpus(operation):
    """Undoes what TensorFlow's bridge does for CPUs only.

    It leaves `mhlo.copy`, which changes nothing and which the TPU's compiler does not take. And it draws random numbers
    by Philox, a long computation, where it lets a TPU choose: that has an instruction for them.
    """
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                _as_lowered_for_tpus(inner.operation)
                if inner.operation.name == "mhlo.copy":
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()
                elif inner.operation.name == "stablehlo.rng_bit_generator":
                    _draw_as_the_device_does(inner.operation)


def _draw_as_the_device_does(philox):
    """The same draw by the device's own algorithm, from the seed itself instead of what Philox starts with."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    state, bits = philox.results
    with ir.InsertionPoint(philox), philox.location:
        short, rest = (stablehlo.slice(philox.operands[0], [i], [j], [1]) for i, j in ((0, 2), (2, 3)))
        key = _key(philox.operands[0])
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


def _key(state):
    """The seed's two halves as one number, of which TensorFlow makes a state of Philox; None if it is not there.

    The halves are signed, the rest is not; the first `or` of unsigned numbers joins them.
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
    """Bytes of this process; `resource.getrusage` would count those of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def _end_with_parent():
    """Ends this process when the one that started it is gone, however that ended."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(folder: str):
    """Compiles folder/program.hlo as folder/job.json says, into folder/result.json and folder/schedule.txt."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder = Path(folder)
    job = json.loads((folder / "job.json").read_text())
    result = compile_program((folder / "program.hlo").read_bytes(), job["topology"], job["replicas"])
    (folder / "schedule.txt").write_text(result.pop("schedule", ""))
    result["peak_memory"] = _peak_memory()
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
