"""The process of the TPU's compiler, and what it makes of programs: most tests compile, in a process of seconds."""

import os
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

import keras_vit
from keras_vit.recipes.preflight import compile_steps, compiler, preflight
from keras_vit.recipes.preflight.compile_steps import CompilerKilled, compile_in_subprocess
from keras_vit.recipes.preflight.lowering import lower_step, lower_to_hlo


@pytest.fixture(scope="module")
def hlo():
    """A matrix product: 2 * 8 * 256 * 128 FLOP."""
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(128, use_bias=False)])
    return lower_step(model, "inference", (tf.TensorSpec((8, 256)),)).hlo


@pytest.fixture
def replace_process(monkeypatch):
    """Starts another command in the place of the compiler. Returns the processes that were started."""
    popen, started = subprocess.Popen, []

    def replace(*command):
        def start(*_, **options):
            started.append(popen(command, **options))
            return started[-1]

        monkeypatch.setattr(compile_steps.subprocess, "Popen", start)
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


@pytest.mark.slow
def test_no_process_is_left_after_ctrl_c(hlo, replace_process):
    started = replace_process("sleep", "60")

    def interrupt(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_in_subprocess(hlo, "v5e:1", 1, interrupt)
    assert len(started) == 1 and started[0].poll() is not None


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


@pytest.mark.extended
def test_memory_of_remat_and_dropout_on_a_tpu():
    """XLA could silently merge the recomputation away, or store the masks of dropout.

    Activations exceed the 16 MiB of fast memory of a v3 core. Measured ratio with remat: 0.63; 1 without, 0.78 if XLA
    kept each block's hidden tokens for its weights. Of dropout: 1.28, mostly the random bits of one layer; by
    calculation 1.5 if masks were stored.
    """

    def temporaries(**options):
        size = {"image_size": 56, "patch_size": 8, "depth": 3, "width": 128, "mlp_dim": 512, "num_heads": 2}
        # With "gap" all blocks compute all tokens.
        fields = {**size, "num_classes": 10, "pooling": "gap", "dtype": "mixed_bfloat16", **options}
        model = keras_vit.VisionTransformer(**fields)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        (step,) = preflight(model, "v3:1", 128, kinds=("training",)).steps
        assert step.problems == ()
        return step.memory["temp"]

    plain, dropout, remat = temporaries(), temporaries(dropout=0.1), temporaries(dropout=0.1, remat="block")
    assert remat < 0.7 * dropout and dropout < 1.4 * plain


def program(name, constant):
    """One constant instruction; its names contain a counter."""
    module = hlo_pb2.HloModuleProto(name=name, entry_computation_name=f"main_{name}")
    instruction = module.computations.add(name=f"main_{name}").instructions.add(name=f"c_{name}", opcode="constant")
    instruction.metadata.op_name = f"vit_{name}/head"
    instruction.literal.s32s.append(constant)
    return module.SerializeToString()


def test_key_depends_on_program_topology_and_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    versions, stored = {"jax": "0.10.2"}, tmp_path / "keras_vit" / "preflight"
    key = compile_steps.cache_key(program("step_1", 3), "v5e:1", versions)
    assert compile_steps.read_result(key) is None
    compile_steps.write_result(key, {"flops": 1.0})
    assert compile_steps.read_result(key) == {"flops": 1.0} and os.listdir(stored) == [f"{key}.json"]
    assert compile_steps.cache_key(program("step_2", 3), "v5e:1", versions) == key
    for constant, topology, other in ((4, "v5e:1", versions), (3, "v3:1", versions), (3, "v5e:1", {})):
        assert compile_steps.read_result(compile_steps.cache_key(program("step_1", constant), topology, other)) is None
    (stored / f"{key}.json").write_text("{")  # damaged
    assert compile_steps.read_result(key) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    compile_steps.write_result("key", {})
    assert compile_steps.read_result("key") is None and caplog.records
