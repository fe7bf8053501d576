"""The process of the TPU's compiler, and what it makes of programs: most tests compile, in a process of seconds."""

import os
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from jax.errors import JaxRuntimeError
from jax.experimental import topologies

from keras_vit.recipes.preflight import compiler, compiler_process, preflight
from keras_vit.recipes.preflight.compiler_process import CompilerKilled, compile_in_subprocess
from keras_vit.recipes.preflight.lowering import lower_to_hlo
from keras_vit.recipes.preflight.step_programs import inference_step


@pytest.fixture(scope="module")
def hlo():
    """A matrix product: 2 * 8 * 256 * 128 FLOP."""
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(128, use_bias=False)])
    return lower_to_hlo(inference_step(model), (tf.TensorSpec((8, 256)),)).hlo


@pytest.fixture
def replace_process(monkeypatch):
    """Starts another command in the place of the compiler. Returns the processes that were started."""
    popen, started = subprocess.Popen, []

    def replace(*command):
        def start(*_, **options):
            started.append(popen(command, **options))
            return started[-1]

        monkeypatch.setattr(compiler_process.subprocess, "Popen", start)
        return started

    return replace


@pytest.mark.extended
def test_compile_for_a_chip_that_is_not_attached(hlo):
    before = dict(os.environ)
    result = compile_in_subprocess(hlo, "v5e:1", 1)
    assert result["flops"] == pytest.approx(2 * 8 * 256 * 128, rel=0.01)
    assert result["memory"]["argument"] >= 4 * (8 * 256 + 256 * 128)
    assert result["schedule"].startswith("HloModule") and result["seconds"] > 0
    assert 1e8 < result["peak_memory"] < 6e9 and os.environ == before


@pytest.mark.extended
def test_all_iterations_of_loops_are_counted():
    """Of a loop of 5 iterations that has one of 3: each has a matrix product of 2 * 8 * 128 * 128 FLOP."""

    def inner(i, x):
        return i + 1, tf.nn.relu(x @ tf.fill((128, 128), tf.cast(i, tf.float32)))

    def outer(i, x):
        return i + 1, tf.while_loop(lambda j, _: j < 3, inner, (0, x + 1.0))[1]

    def step(x):
        return tf.while_loop(lambda i, _: i < 5, outer, (0, x))[1]

    result = compile_in_subprocess(lower_to_hlo(step, (tf.TensorSpec((8, 128)),)).hlo, "v5e:1", 1)
    assert result["schedule"].count(" while(") == 2
    assert result["flops"] == pytest.approx(5 * 3 * 2 * 8 * 128 * 128, rel=0.05)
    assert result["bytes"] > 5 * 3 * 2 * 4 * 8 * 128


@pytest.mark.extended
def test_random_numbers_use_the_default_algorithm_of_a_tpu():
    """Not Philox, to which TensorFlow lowers them for a CPU. Each draw has a separate seed."""

    def step(x, seed):
        return [tf.nn.experimental.stateless_dropout(x, 0.5, seed + i) for i in range(2)]

    program = lower_to_hlo(step, (tf.TensorSpec((8, 256)), tf.TensorSpec((2,), tf.int32))).hlo
    assert b"rng-bit-generator" in program
    schedule = compile_in_subprocess(program, "v5e:1", 1)["schedule"]
    draws = [line for line in schedule.splitlines() if " rng-bit-generator(" in line]
    assert len(draws) == 2 and all("algorithm=rng_default" in draw for draw in draws) and " xor(" not in schedule


@pytest.mark.extended
def test_programs_and_slices_that_the_compiler_refuses(hlo):
    with pytest.raises(ValueError, match="v5e:3x5"):
        compile_in_subprocess(hlo, "v5e:3x5", 1)
    with pytest.raises(ChildProcessError, match="status"):
        compile_in_subprocess(b"no program", "v5e:1", 1)


@pytest.mark.parametrize(
    "code,error,word",
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", CompilerKilled, "memory"),
        ("print('last words'); raise SystemExit(3)", ChildProcessError, "status 3(.|\n)*last words"),
        ("raise SystemExit('ValueError: libtpu has no topology v5e:3x5')", ValueError, "v5e:3x5"),
    ],
)
def test_a_compiler_that_dies(hlo, replace_process, code, error, word):
    replace_process(sys.executable, "-S", "-c", code)
    with pytest.raises(error, match=word):
        compile_in_subprocess(hlo, "v5e:1", 1)


def test_other_errors_of_libtpu_pass_through(monkeypatch):
    """Such as the lock of libtpu held by another process."""

    def fail(*_):
        raise JaxRuntimeError("ABORTED")

    monkeypatch.setattr(topologies, "get_topology_desc", fail)
    with pytest.raises(JaxRuntimeError, match="ABORTED"):
        compiler._devices("v5e:2x2")


@pytest.mark.slow
def test_no_process_is_left_after_ctrl_c(hlo, replace_process):
    started = replace_process("sleep", "60")

    def interrupt(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_in_subprocess(hlo, "v5e:1", 1, interrupt)
    assert len(started) == 1 and started[0].poll() is not None


@pytest.mark.extended
def test_no_process_is_left_after_the_caller_is_killed():
    """SIGKILL, as by a batch system: the compiler notices that its parent is gone."""
    script = f"""
import subprocess, sys, time
command = [sys.executable, "-c", "import runpy, sys, time; compiler = runpy.run_path(sys.argv[1]); "
           "import threading; threading.Thread(target=compiler['_exit_with_parent']).start()", {compiler.__file__!r}]
child = subprocess.Popen(command, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""

    def runs(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
        except FileNotFoundError:
            return False

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as caller:
        child = int(caller.stdout.readline())
        time.sleep(2)
        assert runs(child)
        caller.kill()
    deadline = time.monotonic() + 20
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not runs(child)


def test_untested_versions_are_rejected(monkeypatch):
    monkeypatch.setitem(compiler.TESTED_VERSIONS, "jax", "0.4")
    with pytest.raises(ImportError, match=r"jax .*0\.4.*0\.10"):
        compiler.check_versions()
    monkeypatch.setitem(compiler.TESTED_VERSIONS, "no-such-package", "1")
    monkeypatch.delitem(compiler.TESTED_VERSIONS, "jax")
    with pytest.raises(ImportError, match="no-such-package"):
        compiler.check_versions()


@pytest.mark.extended
def test_out_of_memory_is_reported_with_the_compilers_message():
    model = keras.Sequential([keras.Input((1024, 1024)), keras.layers.Dense(1024), keras.layers.Dense(1024)])
    report = preflight(model, "v5e:1", 8192)
    assert not report.ready and "RESOURCE_EXHAUSTED" in report.steps[0].problems[0]
    assert "exceeds available HBM" in str(report) and str(report).endswith("Not ready.")
