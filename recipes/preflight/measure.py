"""Steps of a recipe or a model, compiled and read."""

import functools
import re
from contextlib import ExitStack

from keras_vit.recipes.preflight import cache, compiler
from keras_vit.recipes.preflight.chips import Topology
from keras_vit.recipes.preflight.live_memory import fullest_moment, layer_of
from keras_vit.recipes.preflight.process import CompilerKilled, compiling
from keras_vit.recipes.preflight.report import StepReport

# Errors of the compiler that come again for the same program; others may be the machine's of that moment.
LASTING = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


def measure(programs, kinds: tuple[str, ...], batch: int, place: Topology, say) -> tuple[StepReport, ...]:
    """The steps of these kinds, compiled side by side, or as they were kept; each is traced while others compile.

    Where memory is too short for that, one after the other.

    Args:
        programs: Of `programs.py`.
        batch: Images a device.
        say: Is told what is going on.
    """
    try:
        return _side_by_side(programs, kinds, batch, place, say)
    except CompilerKilled:  # two may have been one too many
        if len(kinds) == 1:
            raise
        return tuple(_side_by_side(programs, (kind,), batch, place, say)[0] for kind in kinds)


def _side_by_side(programs, kinds, batch, place, say):
    with ExitStack() as compilers:
        waits = [_begin(programs, kind, batch, place, say, compilers) for kind in kinds]
        return tuple(wait() for wait in waits)


def _begin(programs, kind, batch, place, say, compilers):
    """Sets the compiler to work on a step, unless its answer was kept; gives a function that waits for the report."""
    say(f"tracing the {kind} step of {batch} images a device")
    program = programs.lower(kind, batch)
    # An evaluation exchanges nothing between devices.
    replicas = place.replicas if kind == "training" else 1
    chip = place.chip
    report = functools.partial(
        StepReport, kind=kind, batch=batch, limit=chip.memory, peak=chip.peak, bandwidth=chip.bandwidth
    )
    if program.problems:
        return functools.partial(report, problems=program.problems)
    key = cache.key_of(program.hlo, place.name, replicas, compiler.check_versions())
    answer = cache.read(key)
    if answer is not None:
        return lambda: _report(report, answer | {"seconds": 0.0})
    wait = compilers.enter_context(compiling(program.hlo, place.name, replicas))
    return lambda: _report(report, _kept(key, wait(say)))


def _kept(key, answer):
    schedule = answer.pop("schedule")
    if schedule:
        answer["layers"] = fullest_moment(schedule)[1]
    if "error" not in answer or any(kind in answer["error"] for kind in LASTING):
        cache.write(key, answer)
    return answer


def _report(report, answer):
    taken = {"seconds": answer["seconds"], "compiler_memory": answer["peak_memory"]}
    if "error" in answer:
        return report(**taken, problems=(_reason(answer["error"]),))
    layers = tuple((layer, size) for layer, size in answer["layers"])
    return report(**taken, **{name: answer[name] for name in ("memory", "flops", "bytes")}, layers=layers)


def _reason(error):
    """The compiler's words without what is for its own developers, the layer if they name one, and what helps."""
    words = error.partition("\n")[0].partition("HLO module:")[0].strip()
    layers = [layer_of(name) for name in re.findall(r'op_name="([^"]+)"', error)]
    if any(layers):
        words += f" It is about {', '.join(dict.fromkeys(filter(None, layers)))}."
    if "RESOURCE_EXHAUSTED" in words:
        words += " Take fewer images a device (--largest-batch says how many), or run.remat='block' for a ViT."
    return words
