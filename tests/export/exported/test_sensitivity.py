"""Parts of a model: their sensitivity to quantization, and keeping them in float."""

import numpy as np
import pytest

from keras_vit.export import write_tflite
from keras_vit.export.exported.sensitivity import Sensitivity, analyze_sensitivity, propose, sensitivity_table
from keras_vit.export.tflite.graph import read_graph

pytestmark = pytest.mark.slow


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
    assert "35%" in text and "mixed-int8" in text and "--keep-float" not in text


@pytest.mark.parametrize("head", [{"multi_label": True}, {"num_classes": 2}])
def test_sigmoids_and_two_classes_are_compared_by_their_largest_difference(trained_toy, images, head):
    results = analyze_sensitivity(trained_toy(depth=1, **head), "int8", images[:20], images[:5])
    parts = [one.difference for one in results[:-2]]
    assert parts == sorted(parts, reverse=True) and parts[0] > 0 and {one.cosine for one in results} == {None}
    table = sensitivity_table("int8", results)
    assert "| largest difference | agreement |" in table and f"| {results[0].part} | {parts[0]:.5f} |" in table


def test_invalid_arguments(toy, images):
    model = toy(depth=1)
    cases = [
        (model, "float16", images, images, "Received: 'float16'"),
        (toy(num_classes=0), "int8", images, images, "no head"),
        (model, "int8", images / 255, images, "Received: values"),
        (model, "int8", images, images / 255, "Received: values"),
    ]
    for wrong, name, calibration, checked, message in cases:
        with pytest.raises(ValueError, match=message):
            analyze_sensitivity(wrong, name, calibration, checked)
    model.head.bias.assign([np.nan] * 5)
    with pytest.raises(FloatingPointError, match="2 of 2 images"):
        analyze_sensitivity(model, "int16x8", images[:20], images[:2])


def test_kept_parts_are_in_float(classifier, images, tmp_path):
    (path,) = write_tflite(classifier, tmp_path, ["int8"], images[:20], keep_float=["block_0/attention"]).values()
    in_float = {one.outputs[0].name for one in read_graph(path) if one.outputs[0].dtype == "float32"}
    assert any("block_0/attention" in name for name in in_float)
    assert not [name for name in in_float if "mlp" in name and "attention" not in name and "norm" not in name]
