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

from keras_vit.recipes.preflight import compiler, process
from keras_vit.recipes.preflight.lower import lower
from keras_vit.recipes.preflight.steps import inference_step


@pytest.fixture(scope="module")
def hlo():
    """A product of matrices: 2 * 8 * 256 * 128 operations."""
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(128, use_bias=False)])
    return lower(inference_step(model), (tf.TensorSpec((8, 256)),)).hlo


def test_a_program_is_compiled_for_a_chip_that_is_not_there(hlo):
    before = dict(os.environ)
    said = []
    answer = process.compile_elsewhere(hlo, "v5e:1", 1, said.append)
    assert answer["flops"] == pytest.approx(2 * 8 * 256 * 128, rel=0.01)
    assert answer["memory"]["argument"] >= 4 * (8 * 256 + 256 * 128)
    assert answer["schedule"].startswith("HloModule") and answer["seconds"] > 0
    assert 1e8 < answer["peak_memory"] < 6e9
    assert os.environ == before


def test_random_numbers_are_drawn_as_a_tpu_draws_them():
    """Not by Philox, as TensorFlow lowers them for a CPU; each draw with a seed of its own."""

    def step(x, seed):
        return [tf.nn.experimental.stateless_dropout(x, 0.5, seed + i) for i in range(2)]

    program = lower(step, (tf.TensorSpec((8, 256)), tf.TensorSpec((2,), tf.int32))).hlo
    assert b"rng-bit-generator" in program
    schedule = process.compile_elsewhere(program, "v5e:1", 1)["schedule"]
    draws = [line for line in schedule.splitlines() if " rng-bit-generator(" in line]
    assert len(draws) == 2 and all("algorithm=rng_default" in draw for draw in draws)
    assert " xor(" not in schedule


def test_an_unknown_slice_is_the_users_error(hlo):
    with pytest.raises(ValueError, match="libtpu has no topology 'v5e:3x5'"):
        process.compile_elsewhere(hlo, "v5e:3x5", 1)


def test_what_ails_the_compiler_itself_is_not_the_users_error(monkeypatch):
    """As where another process holds libtpu's lock."""

    def refuse(*_):
        raise JaxRuntimeError("ABORTED: The TPU is already in use by another process")

    monkeypatch.setattr(topologies, "get_topology_desc", refuse)
    with pytest.raises(JaxRuntimeError, match="already in use"):
        compiler._devices("v5e:2x2")


def test_a_crash_of_the_compiler_ends_nothing_else():
    with pytest.raises(ChildProcessError, match="compiler ended with status.*Its last words"):
        process.compile_elsewhere(b"no program", "v5e:1", 1)


def test_a_compiler_that_the_system_kills_wanted_memory(hlo, monkeypatch):
    popen = process.subprocess.Popen
    dying = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    monkeypatch.setattr(process.subprocess, "Popen", lambda *_, **options: popen(dying, **options))
    with pytest.raises(ChildProcessError, match="was killed.*no memory left"):
        process.compile_elsewhere(hlo, "v5e:1", 1)


def test_ctrl_c_leaves_no_process_behind(hlo, monkeypatch):
    started = []
    popen = process.subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(["sleep", "60"], start_new_session=True))
        return started[0]

    def interrupt(text):
        raise KeyboardInterrupt

    monkeypatch.setattr(process.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        process.compile_elsewhere(hlo, "v5e:1", 1, interrupt)
    assert started[0].poll() is not None


def test_a_killed_caller_leaves_no_process_behind():
    """SIGKILL, as of a batch system: the compiler sees that it is alone."""
    script = f"""
import subprocess, sys, time
command = [sys.executable, "-c", "import runpy, sys, time; compiler = runpy.run_path(sys.argv[1]); "
           "import threading; threading.Thread(target=compiler['_end_with_parent']).start()", {compiler.__file__!r}]
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


def test_another_version_is_told_before_anything_crashes(monkeypatch):
    monkeypatch.setitem(compiler.WRITTEN_FOR, "jax", "0.4")
    with pytest.raises(ImportError, match=r"jax .*written for 0\.4\. Found: 0\.10.*keras_vit\[preflight\]"):
        compiler.check_versions()
    monkeypatch.setitem(compiler.WRITTEN_FOR, "no-such-package", "1")
    monkeypatch.delitem(compiler.WRITTEN_FOR, "jax")
    with pytest.raises(ImportError, match="Preflight needs no-such-package"):
        compiler.check_versions()
