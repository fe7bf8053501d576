"""Small files compiled by the real compiler, and run on Qualcomm's simulator. test_errors.py is in `make test`."""

import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from litert_quantizer import qtyping

from keras_vit.export.npu import compile_for_npu, find_chip, npu_table, run_on_simulator, simulate, simulation_table
from keras_vit.export.npu.chips import qualcomm_libraries
from keras_vit.export.npu.compile import compile_with_litert, partitions
from keras_vit.export.tflite import quantize
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.flatbuffer import pack_model
from keras_vit.export.tflite.graph import read_graph, run_tflite

pytestmark = [pytest.mark.slow, pytest.mark.extended]


@pytest.fixture(scope="module")
def compiled(artifacts, tmp_path_factory):
    """Format -> report, for SM8750, and the folder of the compiled files."""
    folder, chip = tmp_path_factory.mktemp("compiled"), find_chip("SM8750")
    (folder / "int8.tflite").write_bytes(b"of a previous run")
    names = ("float32", "int8")
    return folder, {name: compile_for_npu(artifacts[name], chip, folder / f"{name}.tflite") for name in names}


def test_all_on_the_npu(artifacts, compiled):
    folder, reports = compiled
    output, report, count = folder / "int8.tflite", reports["int8"], len(read_graph(artifacts["int8"]))
    assert report.ready and (report.num_on_npu, report.num_operations, report.num_partitions) == (count, count, 1)
    assert report.read_bytes > 20_000 and report.written_bytes >= 0 and report.spilled_bytes == report.filled_bytes == 0
    assert [operation.name for operation in read_graph(output)] == ["DISPATCH_OP"]
    assert report.size_bytes == output.stat().st_size and report.seconds > 0
    assert sorted(file.name for file in folder.iterdir()) == ["float32.tflite", "int8.tflite"]
    assert f"{count} of {count}, in 1 program\n" in str(report) and "SM8750 (Snapdragon 8 Elite)" in str(report)
    assert report.as_dict()["chip"] == {"model": "SM8750", "vendor": "qualcomm"} and report.as_dict()["ready"]
    with pytest.raises(ValueError, match="compiled"):
        compile_for_npu(output, find_chip("SM8750"))
    report = compile_for_npu(artifacts["dynamic-int8"], find_chip("SM8650"))
    assert report.ready and report.num_on_npu == report.num_operations and report.num_partitions == 1


def quantized(artifacts, name, path):
    path.write_bytes(pack_model(quantize.quantize(Float32File(artifacts["float32"].read_bytes()), name)))
    return path


def test_convolution_with_integer_weights_is_left(artifacts, monkeypatch, tmp_path):
    """As in a hybrid; the patches of other models keep float weights for that reason."""
    monkeypatch.setattr(quantize, "PATCHES", "no operation")
    report = compile_for_npu(quantized(artifacts, "dynamic-int8", tmp_path / "model.tflite"), find_chip("SM8650"))
    [left] = report.not_on_npu
    assert not report.ready and report.error is None and report.num_on_npu == report.num_operations - 1
    assert (left.operation, left.dtype, left.count) == ("CONV_2D", "float32 x int8", 1)
    assert "export float16, int8 or int16x8" in str(report)


def test_4_bit_weights_are_not_supported(artifacts, monkeypatch, tmp_path):
    """Neither with a scale for each block of inputs, nor, with float activations, with one for each output."""
    chip = find_chip("SM8750")
    report = compile_for_npu(artifacts["int4-weights"], chip)
    [left] = report.not_on_npu
    assert "Unsupported quantization type" in report.error and left.dtype == "float32 x int4"
    assert "a scale for each block of inputs; export int8 or int16x8" in str(report)
    monkeypatch.setattr(quantize, "_granularity", lambda content: qtyping.QuantGranularity.CHANNELWISE)
    report = compile_for_npu(file := quantized(artifacts, "int4-weights", tmp_path / "channels.tflite"), chip)
    counts = {left.dtype: left.count for left in report.not_on_npu}
    assert counts["float32 x int4"] == sum(one.dtype == "float32 x int4" for one in read_graph(file)) > 0
    assert sum(counts.values()) == report.num_operations - report.num_on_npu
    assert "float activations with 4-bit weights; export int8 or int16x8" in str(report)


def test_older_chips(artifacts, tmp_path):
    report = compile_for_npu(artifacts["int16x8"], find_chip("SM8450"))
    [left] = report.not_on_npu
    assert (left.operation, left.dtype) == ("BATCH_MATMUL", "int16") and report.num_partitions > 1
    assert "V73" in left.reason and "V69" in left.reason
    chip = find_chip("SM8350")  # without float operations
    report = compile_for_npu(artifacts["float32"], chip, tmp_path / "compiled.tflite")
    assert not report.ready and report.num_on_npu == 0 and not list(tmp_path.iterdir())
    assert "QNN_Gelu" in report.error and "int8" in report.error and report.not_on_npu
    integers = compile_for_npu(artifacts["int8"], chip)
    assert integers.ready
    first, second = npu_table([report, integers]).splitlines()[2:]
    assert "does not compile" in first and f"{integers.num_on_npu} of {integers.num_operations} | 1 |" in second


def test_through_litert(artifacts, tmp_path, monkeypatch):
    """As for vendors other than Qualcomm, whose SDKs are downloads; here with Qualcomm's libraries in their place."""
    with qualcomm_libraries() as path:
        package = SimpleNamespace(path_to_sdk_libs=lambda: path)
        monkeypatch.setitem(sys.modules, "ai_edge_litert_sdk_qualcomm", package)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        text, compiled = compile_with_litert(artifacts["int8"], find_chip("SM8750"), tmp_path)
        count = len(read_graph(artifacts["int8"]))
        assert partitions(text) == (count, 1) and [one.name for one in read_graph(compiled)] == ["DISPATCH_OP"]
        text, compiled = compile_with_litert(artifacts["float32"], find_chip("SM8350"), tmp_path)
        assert compiled is None and "no properties registered for q::QNN_Gelu" in text
    assert not list(tmp_path.glob("*.error"))  # LiteRT's log


def test_simulator_computes_what_litert_computes(artifacts, compiled, images):
    folder, reports = compiled
    found = {name: simulate(artifacts[name], folder / f"{name}.tflite", images[:8]) for name in reports}
    # float32 runs in half precision; int8 has steps of 1/256.
    assert found["float32"].agreement == found["int8"].agreement == 1
    assert 0 < found["float32"].max_difference < 0.01 and found["int8"].max_difference < 0.1
    assert found["int8"].num_images == 8 and found["int8"].mean_difference <= found["int8"].max_difference
    table = simulation_table([(reports[name], found[name]) for name in reports])
    assert table.count("| 8 | 100.0% |") == 2
    # It reads its input: on other images it differs from LiteRT.
    expected, _ = run_tflite(artifacts["float32"], images[:4])
    simulated = run_on_simulator(folder / "float32.tflite", images[[1, 2, 3, 0]])
    assert simulated.shape == (4, 4) and simulated.dtype == np.float32
    assert np.abs(simulated - expected).max() > 0.1
    np.testing.assert_allclose(simulated[[3, 0, 1, 2]], expected, atol=0.01)
    with pytest.raises(ValueError, match="Received: "):
        run_on_simulator(artifacts["int8"], images[:1])  # not compiled
