"""The benchmark on toy files. Nothing is said about how long they take, which is the machine's affair."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.benchmark import op_profile
from keras_vit.export.benchmark.compare import as_json, benchmark, compare, table
from keras_vit.export.benchmark.op_profile import WORKER, read_profile
from keras_vit.export.benchmark.worker import random_inputs
from keras_vit.export.tflite.graph import read_graph

module = importlib.import_module("keras_vit.export.benchmark.compare")
SUMMARY = """
 ==== Top by Computation Time ====
    Delegate/Add (ND)   0.000  0.02  0.02  50.0%  50.0%  0.000  30  [Delegate]:3

==== Summary by node type ====
                 [Node type]    [count]   [avg ms]    [avg %]    [cdf %]   [mem KB] [times called]
  Delegate/Fully Connected (NC, F32) GEMM         30      1.601    84.000%    84.000%      0.000           1470
                            STRIDED_SLICE          2      0.100    16.000%   100.000%      0.000             60

==== Delegate Statistics ====
Op Name                                         Count    Avg(us)    Min(us)    Max(us)  Total(us)
Delegate/Add (ND)                                1500      11.72          0        133      17580
Delegate/Fully Connected (NC, F32) GEMM          1470      10.00         87       5122      14700

Timings (microseconds): count=435 curr=2776312
"""


@pytest.fixture(scope="module")
def measured(artifacts):
    """Three files side by side."""
    return compare([artifacts[name] for name in ("float32", "dynamic-int8", "int8")], threads=1, runs=12, warmup=2)


def test_every_file_is_measured(measured, artifacts):
    assert [result.path for result in measured] == [str(artifacts[n]) for n in ("float32", "dynamic-int8", "int8")]
    for result in measured:
        assert (result.threads, result.runs, result.warmup) == (1, 12, 2)
        assert 0 < result.median_ms <= result.p90_ms and result.load_ms > 0 and result.first_ms > 0
        assert result.size_bytes == Path(result.path).stat().st_size
        # A process with Python, NumPy and LiteRT, not with TensorFlow.
        assert 10e6 < result.base_memory_bytes <= result.peak_memory_bytes < 300e6


def test_partitions_are_the_interpreters(measured):
    for result in measured:
        interpreter = Interpreter(model_path=result.path)
        interpreter.allocate_tensors()
        delegates = sum(node["op_name"] == "DELEGATE" for node in interpreter._get_ops_details())
        assert result.partitions == delegates and 0 < result.delegated <= result.operations


def test_profile_counts_the_files_operations(measured):
    for result in measured:
        assert not result.profile_missing
        shares = [item.share for item in result.profile]
        assert shares == sorted(shares, reverse=True) and 0 <= shares[-1] <= sum(shares) < 1.01
        products = [item for item in result.profile if item.operation.startswith("Fully Connected")]
        names = [operation.name for operation in read_graph(result.path)]
        assert sum(item.count for item in products) == names.count("FULLY_CONNECTED") > 8
        assert all(item.delegated for item in products)
        # What XNNPACK left has TFLite's names.
        left = {item.operation: item.count for item in result.profile if not item.delegated}
        assert all(names.count(name) >= count for name, count in left.items())
        assert sum(left.values()) == result.operations - result.delegated
    for result, kernel in zip(measured, ("NC, F32)", "QC8W")):
        assert any(kernel in item.operation for item in result.profile)


def test_all_figures_are_of_the_first_subgraph(tmp_path):
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")

    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 64))])
        def once(self, x):
            return x @ weights

        @tf.function(input_signature=[tf.TensorSpec((1, 64))])
        def thrice(self, x):
            return tf.nn.relu(x @ weights) @ weights @ weights

    module = Two()
    for order in ("once", "thrice"), ("thrice", "once"):
        functions = {name: getattr(module, name) for name in order}
        tf.saved_model.save(module, str(tmp_path / order[0]), functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / order[0]), signature_keys=list(order))
        path = tmp_path / f"{order[0]}.tflite"
        path.write_bytes(converter.convert())
        first = [operation for operation in read_graph(path) if operation.subgraph == 0]
        result = benchmark(path, runs=1, warmup=1)
        assert result.operations == len(first) and not result.profile_missing
        products = [item.count for item in result.profile if item.operation.startswith("Fully Connected")]
        assert sum(products) == len([operation for operation in first if operation.name == "FULLY_CONNECTED"])


def test_without_a_profile(artifacts):
    result = benchmark(artifacts["float32"], threads=2, runs=1, warmup=1, profile=False)
    assert result.profile == () and result.profile_missing == "not asked for"
    assert "no times: not asked for" in table([result])


def test_table_and_json(measured, artifacts):
    text = table(measured, top=1)
    assert all(f"model-{name}.tflite" in text for name in ("float32", "dynamic-int8", "int8"))
    assert f"{measured[0].delegated} of {measured[0].operations} in {measured[0].partitions}" in text
    assert str(artifacts["float32"].parent) not in text  # names are enough where they differ
    assert str(artifacts["float32"].parent) in table([measured[0], measured[0]])
    assert text.count(" x ") == 3 and table(measured, top=2).count(" x ") == 6
    written = json.loads(as_json(measured))
    assert [item["median_ms"] for item in written] == [result.median_ms for result in measured]
    assert written[0]["profile"][0]["operation"] == measured[0].profile[0].operation


def test_summary_of_the_profiler():
    # 50 and 49 kernels in each of 30 runs, of which the first table merges some of different pieces.
    add, product, left = read_profile(SUMMARY, 30)
    assert (add.operation, add.count, add.delegated) == ("Add (ND)", 50, True)
    assert add.milliseconds == pytest.approx(0.586) and add.share == pytest.approx(0.586 / 1.276)
    assert (product.operation, product.count) == ("Fully Connected (NC, F32) GEMM", 49)
    assert product.milliseconds == pytest.approx(0.49)
    assert (left.operation, left.count, left.delegated) == ("STRIDED_SLICE", 2, False)
    assert left.milliseconds == pytest.approx(0.2) and add.share + product.share + left.share == pytest.approx(1)
    assert read_profile("", 30) == ()


def test_turns_are_interleaved(artifacts, monkeypatch):
    asked = []
    answer = module._Worker.answer

    def watched(worker, *request):
        asked.append((worker.path.name, *request))
        return answer(worker, *request)

    monkeypatch.setattr(module._Worker, "answer", watched)
    compare([artifacts["float32"], artifacts["int8"]], runs=25, warmup=1, profile=False)
    a, b = "model-float32.tflite", "model-int8.tflite"
    assert asked == [(a,), (b,), (a, 10), (b, 10), (a, 10), (b, 10), (a, 5), (b, 5)]


def test_inputs_are_seeded_pixels_of_the_dtype(artifacts):
    for name, dtype, low, high in (("float32", np.float32, -1, 1), ("int8", np.uint8, 0, 255)):
        interpreter = Interpreter(model_path=str(artifacts[name]))
        (pixels,), (again,), (other,) = (random_inputs(interpreter, seed) for seed in (0, 0, 1))
        assert pixels.dtype == dtype and pixels.shape == (1, 16, 16, 3)
        assert low <= pixels.min() < low + 0.05 * (high - low) and high - 0.05 * (high - low) < pixels.max() <= high
        assert (pixels == again).all() and (pixels != other).any()


def test_a_crash_stays_in_its_process(artifacts, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("import os, sys\nprint('WARNING: no\\nout of luck', file=sys.stderr, flush=True)\nos.abort()\n")
    monkeypatch.setattr(op_profile, "WORKER", worker)
    with pytest.raises(ValueError, match="model-float32.tflite cannot run here: .* signal 6: out of luck"):
        benchmark(artifacts["float32"], runs=1)
    # If only the profiler crashes, the rest counts.
    worker.write_text(
        "import os, runpy, sys\nif sys.argv[1] == 'profile': os.abort()\n"
        f"runpy.run_path({str(WORKER)!r}, run_name='__main__')"
    )
    result = benchmark(artifacts["float32"], runs=2, warmup=1)
    assert result.median_ms > 0 and result.profile == () and "signal 6" in result.profile_missing


def test_what_cannot_run_says_so(tmp_path):
    function = tf.function(tf.math.erf, input_signature=[tf.TensorSpec((1, 8))])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    path = tmp_path / "flex.tflite"
    path.write_bytes(converter.convert())
    with pytest.raises(ValueError, match="flex.tflite cannot run here: .*Select TensorFlow op"):
        benchmark(path)


def test_bad_requests_are_refused_before_a_process_starts(artifacts, tmp_path, monkeypatch):
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: pytest.fail("started"))
    for name in ("threads", "runs", "warmup"):
        with pytest.raises(ValueError, match=f"`{name}` must be 1 or more. Received: 0"):
            benchmark(artifacts["float32"], **{name: 0})
    for paths in ([], str(artifacts["float32"]), artifacts["float32"]):
        with pytest.raises(ValueError, match="must be a list of .tflite files"):
            compare(paths)
    empty = tmp_path / "empty.tflite"
    empty.touch()
    with pytest.raises(ValueError, match="is empty"):
        compare([artifacts["float32"], empty])
    with pytest.raises(FileNotFoundError):
        benchmark(tmp_path / "nowhere.tflite")


def test_the_worker_needs_no_tensorflow(artifacts):
    code = (
        f"import sys, runpy; sys.argv = ['w', 'profile', {str(artifacts['float32'])!r}, '1', '1', '0']; "
        f"runpy.run_path({str(WORKER)!r}, run_name='__main__'); "
        "print('brought', {'tensorflow', 'keras', 'keras_vit'} & set(sys.modules))"
    )
    done = module.subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "brought set()", done.stderr[-2000:]
