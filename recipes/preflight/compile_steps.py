"""Compiles the steps of a recipe or a model, or reads their stored results, and reports them."""

import re
from contextlib import ExitStack
from dataclasses import replace

from keras_vit.recipes.preflight import cache, compiler
from keras_vit.recipes.preflight.chips import Topology
from keras_vit.recipes.preflight.compiler_process import CompilerKilled, compiler_process
from keras_vit.recipes.preflight.live_tensors import layer_name, peak_live_tensors
from keras_vit.recipes.preflight.report import StepReport
from keras_vit.recipes.preflight.step_programs import StepPrograms

# Compiler errors that depend on the program alone; others may be due to the state of this machine.
REPRODUCIBLE = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


def compile_steps(
    programs: StepPrograms, kinds: tuple[str, ...], batch_size: int, topology: Topology, log
) -> tuple[StepReport, ...]:
    """Compiles the steps in parallel, each traced while others compile.

    If the machine runs out of memory, they are compiled one after the other.

    Args:
        programs: The lowered steps.
        kinds: Which steps.
        batch_size: Images per device.
        topology: Where the steps would run.
        log: Called with progress messages.
    """
    try:
        return _in_parallel(programs, kinds, batch_size, topology, log)
    except CompilerKilled:  # two compilers may need too much memory together
        if len(kinds) == 1:
            raise
        return tuple(_in_parallel(programs, (kind,), batch_size, topology, log)[0] for kind in kinds)


def _in_parallel(programs, kinds, batch_size, topology, log):
    with ExitStack() as compilers:
        waits = [_start(programs, kind, batch_size, topology, log, compilers) for kind in kinds]
        return tuple(wait() for wait in waits)


def _start(programs, kind, batch_size, topology, log, compilers):
    """Starts the compiler, unless the result is stored. Returns a function that waits for the report."""
    log(f"tracing the {kind} step, {batch_size} images per device")
    program = programs.lower(kind, batch_size)
    # Only training communicates between devices.
    replicas = topology.replicas if kind == "training" else 1
    chip = topology.chip
    step = StepReport(
        kind=kind,
        batch_size=batch_size,
        memory_limit=chip.memory,
        peak_flops=chip.peak_flops,
        bandwidth=chip.bandwidth,
    )
    if program.problems:
        return lambda: replace(step, problems=program.problems)
    key = cache.cache_key(program.hlo, topology.name, replicas, compiler.check_versions())
    stored = cache.read(key)
    if stored is not None:
        return lambda: _filled(step, stored | {"seconds": 0.0})
    wait = compilers.enter_context(compiler_process(program.hlo, topology.name, replicas, program.partitioned))
    return lambda: _filled(step, _store(key, wait(log)))


def _store(key, result):
    schedule = result.pop("schedule")
    if schedule:
        result["layers"] = peak_live_tensors(schedule)[1]
    if "error" not in result or any(kind in result["error"] for kind in REPRODUCIBLE):
        cache.write(key, result)
    return result


def _filled(step, result) -> StepReport:
    """The report of a step with what the compiler found."""
    cost = {"compile_seconds": result["seconds"], "compiler_memory": result["peak_memory"]}
    if "error" in result:
        return replace(step, **cost, problems=(_problem(result["error"]),))
    layers = tuple((layer, size) for layer, size in result["layers"])
    return replace(step, **cost, **{name: result[name] for name in ("memory", "flops", "bytes")}, layer_memory=layers)


def _problem(error):
    """The compiler's message without its internal details, plus the layers it names and a fix."""
    message = error.partition("\n")[0].partition("HLO module:")[0].strip()
    layers = [layer_name(name) for name in re.findall(r'op_name="([^"]+)"', error)]
    if any(layers):
        message += f" Layers: {', '.join(dict.fromkeys(filter(None, layers)))}."
    if "RESOURCE_EXHAUSTED" in message:
        message += " Use fewer images per device (--largest-batch finds how many), or run.remat='block' for a ViT."
    return message
