"""The benchmark on toy files; nothing is asserted about absolute times."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import benchmark as benchmark_module
from keras_vit.export.benchmark import compare
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.private_apis import operation_details

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(artifacts):
    return compare(
        [artifacts[name] for name in ("float32", "dynamic-int8", "int8")], num_threads=1, num_runs=12, warmup_runs=2
    )


def test_every_file_is_measured(measured, artifacts):
    assert [result.path for result in measured] == [str(artifacts[n]) for n in ("float32", "dynamic-int8", "int8")]
    for result in measured:
        assert (result.num_threads, result.num_runs, result.warmup_runs) == (1, 12, 2)
        assert 0 < result.median_ms <= result.p90_ms and result.load_ms > 0 and result.first_ms > 0
        assert result.size_bytes == Path(result.path).stat().st_size
        # Python, NumPy and LiteRT, without TensorFlow.
        assert 10e6 < result.base_memory_bytes <= result.peak_memory_bytes < 300e6
        interpreter = Interpreter(model_path=result.path)
        interpreter.allocate_tensors()
        delegates = sum(node["op_name"] == "DELEGATE" for node in operation_details(interpreter))
        assert result.num_partitions == delegates and 0 < result.num_delegated <= result.num_operations


def test_first_subgraph_is_measured(tmp_path):
    weights, module = np.random.default_rng(0).normal(size=(64, 64)).astype("float32"), tf.Module()
    spec = tf.TensorSpec((1, 64))
    module.thrice = tf.function(lambda x: {"y": tf.nn.relu(x @ weights) @ weights @ weights}, [spec])
    module.once = tf.function(lambda x: {"y": x @ weights}, [spec])
    names, path = ["thrice", "once"], tmp_path / "two.tflite"
    tf.saved_model.save(module, str(tmp_path / "saved"), {name: getattr(module, name) for name in names})
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), names).convert())
    first = [operation.name for operation in read_graph(path) if operation.subgraph == 0]
    (result,) = compare([path], num_runs=1, warmup_runs=1)
    assert result.num_operations == len(first) and first.count("FULLY_CONNECTED") in (1, 3)


def test_turns_are_interleaved(artifacts, monkeypatch):
    requests = []
    request = benchmark_module._Worker.request

    def recorded(worker, *numbers):
        requests.append((worker.name.name, *numbers))
        return request(worker, *numbers)

    monkeypatch.setattr(benchmark_module._Worker, "request", recorded)
    compare([artifacts["float32"], artifacts["int8"]], num_runs=25, warmup_runs=1)
    a, b = "model-float32.tflite", "model-int8.tflite"
    assert requests == [(a,), (b,), (a, 10), (b, 10), (a, 10), (b, 10), (a, 5), (b, 5)]


def test_crash_of_a_worker(artifacts, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("import os, sys\nprint('WARNING: no\\nout of luck', file=sys.stderr, flush=True)\nos.abort()\n")
    monkeypatch.setattr(benchmark_module, "WORKER", worker)
    with pytest.raises(ValueError, match="model-float32.tflite cannot run on this machine: .* signal 6: out of luck"):
        compare([artifacts["float32"]], num_runs=1)


def test_unsupported_operations(tmp_path):
    function = tf.function(tf.math.erf, input_signature=[tf.TensorSpec((1, 8))])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    path = tmp_path / "flex.tflite"
    path.write_bytes(converter.convert())
    with pytest.raises(ValueError, match="flex.tflite cannot run on this machine: .*Select TensorFlow op"):
        compare([path])


def test_invalid_arguments_raise_before_a_process_starts(artifacts, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_module.subprocess, "Popen", lambda *a, **k: pytest.fail("started"))
    for name in ("num_threads", "num_runs", "warmup_runs"):
        with pytest.raises(ValueError, match=f"`{name}` .*Received: 0"):
            compare([artifacts["float32"]], **{name: 0})
    (empty := tmp_path / "empty.tflite").touch()
    wrong = {"list": [], "list ": str(artifacts["float32"]), " list": artifacts["float32"], "empty": [empty]}
    for message, paths in wrong.items():
        with pytest.raises(ValueError, match=message):
            compare(paths)
    with pytest.raises(FileNotFoundError):
        compare([tmp_path / "nowhere.tflite"])
