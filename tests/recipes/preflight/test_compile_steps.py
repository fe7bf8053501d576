from contextlib import contextmanager

import keras
import pytest
import tensorflow as tf

from keras_vit.recipes.preflight import preflight
from keras_vit.recipes.preflight.compiler_process import CompilerKilled


@pytest.fixture
def model():
    """A compiled model: two steps that are traced fast."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def test_steps_are_traced_while_others_compile(model, monkeypatch, tmp_path):
    events = []

    @contextmanager
    def compiler_process(*program):
        events.append("compiler started")
        yield lambda log: events.append("waited") or {"seconds": 1, "peak_memory": 1, "schedule": "", "error": "Oh"}
        events.append("compiler ended")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras_vit.recipes.preflight.compile_steps.compiler_process", compiler_process)
    preflight(model, "v5e:1", 8, log=lambda text: events.append(text.partition(" step")[0]))
    assert events == [
        *("tracing the training", "compiler started", "tracing the inference", "compiler started"),
        *("waited", "waited", "compiler ended", "compiler ended"),
    ]


@pytest.mark.parametrize("room,num_reports", [(1, 2), (0, None)])
def test_compilers_run_one_by_one_when_memory_is_short(model, room, num_reports, monkeypatch, tmp_path):
    running = []

    @contextmanager
    def compiler_process(*program):
        running.append(program)
        crowded = len(running) > room

        def wait(log):
            if crowded or len(running) > room:
                raise CompilerKilled("It was killed.")
            return {"seconds": 1.0, "peak_memory": 1.0, "schedule": "", "error": "INTERNAL: Oh"}

        try:
            yield wait
        finally:
            running.remove(program)

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras_vit.recipes.preflight.compile_steps.compiler_process", compiler_process)
    if num_reports:
        assert [step.problems for step in preflight(model, "v5e:1", 8).steps] == [("INTERNAL: Oh",)] * num_reports
    else:
        with pytest.raises(ChildProcessError, match="was killed"):
            preflight(model, "v5e:1", 8)


@pytest.mark.slow
def test_out_of_memory_is_reported_with_the_compilers_message():
    model = keras.Sequential([keras.Input((1024, 1024)), keras.layers.Dense(1024), keras.layers.Dense(1024)])
    report = preflight(model, "v5e:1", 8192)
    assert not report.ready and "RESOURCE_EXHAUSTED" in report.steps[0].problems[0]
    assert "exceeds available HBM" in str(report) and str(report).endswith("Not ready.")


def test_host_calls_are_reported_without_compiling():
    host = keras.layers.Lambda(lambda x: tf.numpy_function(abs, [x], tf.float32), output_shape=(4,), name="host")
    model = keras.Sequential([keras.Input((4,)), host])
    report = preflight(model, "v5e:1", 8)
    assert "in sequential/host calls back to the host" in str(report).replace("sequential_1", "sequential")


@pytest.mark.parametrize("error,compilations", [("INTERNAL: no space left", 2), ("RESOURCE_EXHAUSTED: HBM", 1)])
def test_only_errors_of_the_program_itself_are_stored(error, compilations, model, replace_compiler):
    compiled = []

    def fail(hlo, *others):
        compiled.append(hlo)
        return {"seconds": 1.0, "peak_memory": 1e9, "schedule": "", "error": error}

    replace_compiler(fail)
    for _ in range(2):
        assert not preflight(model, "v5e:1", 8, kinds=("inference",)).ready
    assert len(compiled) == compilations
