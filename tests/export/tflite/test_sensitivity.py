"""Sensitivity of a model's parts to quantization."""

import numpy as np
import pytest

from keras_vit.export import write_tflite
from keras_vit.export.tflite import convert, sensitivity
from keras_vit.export.tflite.sensitivity import Sensitivity, analyze_sensitivity, propose, sensitivity_table

pytestmark = pytest.mark.slow


def test_ranges_are_those_of_the_written_file(toy, images, tmp_path, monkeypatch):
    quantized, model, calibration = [], toy(depth=1), images[:20]
    for module in (convert, sensitivity):
        monkeypatch.setattr(module, "quantize", lambda content, name, ranges, **_: quantized.append(ranges) or content)
    write_tflite(model, tmp_path, ["int16x8"], calibration)
    results = analyze_sensitivity(model, "int16x8", calibration, calibration[:2])
    of_file, *of_parts = quantized
    assert len(of_parts) == len(results) == 6 and len(of_file) > 30
    for ranges in of_parts:
        assert ranges.keys() == of_file.keys()
        for name, ends in of_file.items():
            np.testing.assert_array_equal([ranges[name]["min"], ranges[name]["max"]], [ends["min"], ends["max"]])


def test_most_sensitive_part_comes_first(classifier, images):
    """A hidden unit with large values that nothing reads widens the range of its layer."""
    spoiled = type(classifier).from_config(classifier.get_config())
    spoiled.set_weights(classifier.get_weights())
    mlp = spoiled.encoder.blocks[0].mlp
    mlp.hidden.bias.assign(np.where(np.arange(64) == 5, 300.0, mlp.hidden.bias))
    mlp.out.kernel.assign(np.where(np.arange(64)[:, None] == 5, 0.0, mlp.out.kernel))
    results = analyze_sensitivity(spoiled, "int8", images[:20], images)
    first, second, *_, whole, without = results
    assert first.part == "block_0/mlp" and 1 - first.cosine > 2 * (1 - second.cosine)
    assert (whole.part, without.part) == ("all", "all but block_0/mlp")
    assert 1 - without.cosine < 0.7 * (1 - whole.cosine)
    assert '--keep-float "block_0/mlp"' in propose("int8", results)


def test_another_format_is_proposed_where_no_part_is_to_blame():
    cosines = {"block_0/mlp": 0.98, "head": 0.981, "all else": 0.982, "all": 0.95, "all but block_0/mlp": 0.96}
    text = propose("int8", [Sensitivity(part, cosine, 0.9) for part, cosine in cosines.items()])
    assert text.startswith("block_0/mlp causes 35% of the parts' error, and without it the file is hardly better")
    assert "mixed-int8" in text and "--keep-float" not in text


def test_sigmoids_are_compared_by_their_largest_difference(trained_toy, images):
    results = analyze_sensitivity(trained_toy(depth=1, multi_label=True), "int8", images[:20], images[:5])
    parts = [one.difference for one in results[:-2]]
    assert parts == sorted(parts, reverse=True) and parts[0] > 0 and {one.cosine for one in results} == {None}
    assert "| largest difference | agreement |" in sensitivity_table("int8", results)
    assert f"| {results[0].part} | {parts[0]:.5f} |" in sensitivity_table("int8", results)


def test_nan_is_no_agreement(toy, images):
    model = toy(depth=1)
    model.head.bias.assign([np.nan] * 5)
    with pytest.raises(FloatingPointError, match="^The model .* returns NaN or infinity for 2 of 2 images"):
        analyze_sensitivity(model, "int16x8", images[:20], images[:2])


def test_invalid_arguments(toy, images):
    with pytest.raises(ValueError, match="supports the formats mixed-int8, int8, int16x8. Received: 'float16'"):
        analyze_sensitivity(toy(), "float16", images, images)
    with pytest.raises(ValueError, match="has no head to classify with"):
        analyze_sensitivity(toy(num_classes=0), "int8", images, images)
    for calibration, checked in ((images / 255, images), (images, images / 255)):
        with pytest.raises(
            ValueError, match="pixels in .0, 255., not yet scaled by `model.preprocess`.*Received: values"
        ):
            analyze_sensitivity(toy(), "int8", calibration, checked)
