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

from keras_vit.recipes.preflight import compiler, compiler_process
from keras_vit.recipes.preflight.lowering import lower_to_hlo
from keras_vit.recipes.preflight.step_functions import inference_step


@pytest.fixture(scope="module")
def hlo():
    """A matrix product: 2 * 8 * 256 * 128 FLOP."""
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(128, use_bias=False)])
    return lower_to_hlo(inference_step(model), (tf.TensorSpec((8, 256)),)).hlo


@pytest.mark.slow
def test_compile_for_a_chip_that_is_not_attached(hlo):
    before = dict(os.environ)
    messages = []
    result = compiler_process.compile_in_subprocess(hlo, "v5e:1", 1, messages.append)
    assert result["flops"] == pytest.approx(2 * 8 * 256 * 128, rel=0.01)
    assert result["memory"]["argument"] >= 4 * (8 * 256 + 256 * 128)
    assert result["schedule"].startswith("HloModule") and result["seconds"] > 0
    assert 1e8 < result["peak_memory"] < 6e9
    assert os.environ == before


@pytest.mark.slow
def test_all_iterations_of_loops_are_counted():
    """Of a loop of 5 iterations that has one of 3: each has a matrix product of 2 * 8 * 128 * 128 FLOP."""

    def inner(i, x):
        return i + 1, tf.nn.relu(x @ tf.fill((128, 128), tf.cast(i, tf.float32)))

    def outer(i, x):
        return i + 1, tf.while_loop(lambda j, _: j < 3, inner, (0, x + 1.0))[1]

    def step(x):
        return tf.while_loop(lambda i, _: i < 5, outer, (0, x))[1]

    program = lower_to_hlo(step, (tf.TensorSpec((8, 128)),)).hlo
    result = compiler_process.compile_in_subprocess(program, "v5e:1", 1)
    assert result["schedule"].count(" while(") == 2
    assert result["flops"] == pytest.approx(5 * 3 * 2 * 8 * 128 * 128, rel=0.05)
    assert result["bytes"] > 5 * 3 * 2 * 4 * 8 * 128


@pytest.mark.slow
def test_random_numbers_use_the_default_algorithm_of_a_tpu():
    """Not Philox, to which TensorFlow lowers them for a CPU. Each draw has a separate seed."""

    def step(x, seed):
        return [tf.nn.experimental.stateless_dropout(x, 0.5, seed + i) for i in range(2)]

    program = lower_to_hlo(step, (tf.TensorSpec((8, 256)), tf.TensorSpec((2,), tf.int32))).hlo
    assert b"rng-bit-generator" in program
    schedule = compiler_process.compile_in_subprocess(program, "v5e:1", 1)["schedule"]
    draws = [line for line in schedule.splitlines() if " rng-bit-generator(" in line]
    assert len(draws) == 2 and all("algorithm=rng_default" in draw for draw in draws)
    assert " xor(" not in schedule


@pytest.mark.slow
def test_unknown_slice(hlo):
    with pytest.raises(ValueError, match="libtpu has no topology 'v5e:3x5'"):
        compiler_process.compile_in_subprocess(hlo, "v5e:3x5", 1)


def test_other_errors_of_libtpu_pass_through(monkeypatch):
    """Such as the lock of libtpu held by another process."""

    def fail(*_):
        raise JaxRuntimeError("ABORTED: The TPU is already in use by another process")

    monkeypatch.setattr(topologies, "get_topology_desc", fail)
    with pytest.raises(JaxRuntimeError, match="already in use"):
        compiler._devices("v5e:2x2")


@pytest.mark.slow
def test_compiler_crash():
    with pytest.raises(ChildProcessError, match="compiler exited with status.*Last output"):
        compiler_process.compile_in_subprocess(b"no program", "v5e:1", 1)


def test_compiler_killed_by_the_system(hlo, monkeypatch):
    popen = compiler_process.subprocess.Popen
    dying = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    monkeypatch.setattr(compiler_process.subprocess, "Popen", lambda *_, **options: popen(dying, **options))
    with pytest.raises(ChildProcessError, match="was killed.*out of memory"):
        compiler_process.compile_in_subprocess(hlo, "v5e:1", 1)


@pytest.mark.slow
def test_no_process_is_left_after_ctrl_c(hlo, monkeypatch):
    started = []
    popen = compiler_process.subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(["sleep", "60"], start_new_session=True))
        return started[0]

    def interrupt(text):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler_process.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        compiler_process.compile_in_subprocess(hlo, "v5e:1", 1, interrupt)
    assert started[0].poll() is not None


@pytest.mark.slow
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
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as caller:
        child = int(caller.stdout.readline())
        time.sleep(2)
        assert _runs(child)
        caller.kill()
    deadline = time.monotonic() + 20
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _runs(child)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_untested_versions_are_rejected(monkeypatch):
    monkeypatch.setitem(compiler.TESTED_VERSIONS, "jax", "0.4")
    with pytest.raises(ImportError, match=r"jax .*tested with 0\.4\. Found: 0\.10.*keras_vit\[preflight\]"):
        compiler.check_versions()
    monkeypatch.setitem(compiler.TESTED_VERSIONS, "no-such-package", "1")
    monkeypatch.delitem(compiler.TESTED_VERSIONS, "jax")
    with pytest.raises(ImportError, match="Preflight requires no-such-package"):
        compiler.check_versions()
