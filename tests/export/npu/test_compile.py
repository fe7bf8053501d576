"""Small files compiled by the real compiler, in `make test-all`; errors in `make test`, too."""

import sys
import tempfile
from types import SimpleNamespace

import pytest
from litert_quantizer import qtyping

from keras_vit.export.npu import Chip, compile_for_npu, find_chip, npu_table
from keras_vit.export.npu.compile import compile_with_litert
from keras_vit.export.npu.compiler_output import partitions
from keras_vit.export.npu.libraries import litert_file, qualcomm_libraries
from keras_vit.export.tflite import quantize
from keras_vit.export.tflite.graph import read_graph

pytestmark = pytest.mark.slow


@pytest.mark.extended
def test_all_on_the_npu(artifacts, tmp_path):
    output = tmp_path / "compiled.tflite"
    output.write_bytes(b"of a previous run")
    report = compile_for_npu(artifacts["int8"], find_chip("SM8750"), output)
    count = len(read_graph(artifacts["int8"]))
    assert report.ready and (report.num_on_npu, report.num_operations, report.num_partitions) == (count, count, 1)
    assert report.read_bytes > 20_000 and report.written_bytes >= 0 and report.spilled_bytes == report.filled_bytes == 0
    assert [operation.name for operation in read_graph(output)] == ["DISPATCH_OP"]
    assert report.size_bytes == output.stat().st_size and report.seconds > 0
    assert [file.name for file in tmp_path.iterdir()] == ["compiled.tflite"]
    text = str(report)
    assert f"{count} of {count}, in 1 program\n" in text and "SM8750 (Snapdragon 8 Elite)" in text
    assert report.as_dict()["chip"] == {"model": "SM8750", "vendor": "qualcomm"} and report.as_dict()["ready"]
    with pytest.raises(ValueError, match="compiled"):
        compile_for_npu(output, find_chip("SM8750"))


@pytest.mark.extended
def test_8_bit_weights_run_whole(artifacts):
    report = compile_for_npu(artifacts["dynamic-int8"], find_chip("SM8650"))
    assert report.ready and report.num_on_npu == report.num_operations and report.num_partitions == 1


@pytest.mark.extended
def test_convolution_with_integer_weights_is_left(artifacts, monkeypatch, tmp_path):
    """As in a hybrid; the patches of other models keep float weights for that reason."""
    monkeypatch.setattr(quantize, "PATCHES", "no operation")
    (file := tmp_path / "model.tflite").write_bytes(
        quantize.quantize(artifacts["float32"].read_bytes(), "dynamic-int8")
    )
    report = compile_for_npu(file, find_chip("SM8650"))
    [left] = report.not_on_npu
    assert not report.ready and report.error is None and report.num_on_npu == report.num_operations - 1
    assert (left.operation, left.dtype, left.count) == ("CONV_2D", "float32 x int8", 1)
    assert "export float16, int8 or int16x8" in str(report)


@pytest.mark.extended
def test_4_bit_weights_are_not_supported(artifacts, monkeypatch, tmp_path):
    """Neither with a scale for each block of inputs, nor, with float activations, with one for each output."""
    chip = find_chip("SM8750")
    report = compile_for_npu(artifacts["int4-weights"], chip)
    [left] = report.not_on_npu
    assert report.error == "The compiler reports: Unsupported quantization type." and left.dtype == "float32 x int4"
    assert "4-bit weights with a scale for each block of inputs; export int8 or int16x8" in str(report)
    monkeypatch.setattr(quantize, "_granularity", lambda content: qtyping.QuantGranularity.CHANNELWISE)
    (file := tmp_path / "channels.tflite").write_bytes(
        quantize.quantize(artifacts["float32"].read_bytes(), "int4-weights")
    )
    report = compile_for_npu(file, chip)
    counts = {left.dtype: left.count for left in report.not_on_npu}
    assert counts["float32 x int4"] == sum(one.dtype == "float32 x int4" for one in read_graph(file)) > 0
    assert sum(counts.values()) == report.num_operations - report.num_on_npu
    assert "float activations with 4-bit weights; export int8 or int16x8" in str(report)


@pytest.mark.extended
def test_chip_that_is_too_old_for_an_operation(artifacts):
    report = compile_for_npu(artifacts["int16x8"], find_chip("SM8450"))
    [left] = report.not_on_npu
    assert (left.operation, left.dtype) == ("BATCH_MATMUL", "int16") and report.num_partitions > 1
    assert "requires a Hexagon V73 NPU or later (Snapdragon 8 Gen 2, SM8550), and this chip has a V69" in left.reason


@pytest.mark.extended
def test_chip_without_float_operations(artifacts, tmp_path):
    chip = find_chip("SM8350")
    report = compile_for_npu(artifacts["float32"], chip, tmp_path / "compiled.tflite")
    assert not report.ready and report.num_on_npu == 0 and not list(tmp_path.iterdir())
    assert "QNN_Gelu" in report.error and report.error.endswith("integer operations only: export the format int8.")
    assert "DOES NOT COMPILE" in str(report) and report.not_on_npu
    integers = compile_for_npu(artifacts["int8"], chip)
    assert integers.ready
    first, second = npu_table([report, integers]).splitlines()[2:]
    assert "does not compile" in first and f"{integers.num_on_npu} of {integers.num_operations} | 1 |" in second


def test_compiler_that_is_killed(artifacts, monkeypatch, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nkill -9 $$\n")
    tool.chmod(0o755)
    monkeypatch.setattr("keras_vit.export.npu.compile.litert_file", lambda *parts: tool)
    report = compile_for_npu(artifacts["int8"], find_chip("SM8750"))
    assert report.error == "The compiler reports: the compiler was ended by signal 9."


@pytest.mark.extended
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


def test_errors(artifacts, tmp_path):
    chip, whole = find_chip("SM8750"), artifacts["int8"]
    (bad := tmp_path / "model.keras").write_bytes(b"PK\3\4 and more")
    cases = [
        ((bad, chip), ValueError, ".tflite"),
        ((tmp_path / "nowhere.tflite", chip), FileNotFoundError, "nowhere"),
        ((whole, find_chip("E9965")), ImportError, "ai-edge-litert-sdk-samsung"),
        ((whole, chip, tmp_path / "nowhere" / "compiled.tflite"), FileNotFoundError, "nowhere"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            compile_for_npu(*arguments)
    assert litert_file("tools", "apply_plugin_main").is_file() and Chip("x", "samsung").name == "samsung"
