import numpy as np
import pytest

from keras_vit.export import write_tflite
from keras_vit.export.tflite import convert as tflite
from keras_vit.export.tflite import sensitivity
from keras_vit.export.tflite.sensitivity import part_costs


def test_parts_have_the_ranges_of_the_file_that_is_written(toy, pixels, tmp_path, monkeypatch):
    given, model, images = [], toy(depth=1), pixels[:20]
    for module in (tflite, sensitivity):
        monkeypatch.setattr(module, "quantize", lambda content, name, ranges, **_: given.append(ranges) or content)
    write_tflite(model, tmp_path, ["int16x8"], images, seed=3)
    costs = part_costs(model, "int16x8", images, images[:2], seed=3)
    of_file, *of_parts = given
    assert len(of_parts) == len(costs) == 4 and len(of_file) > 30
    for ranges in of_parts:
        assert ranges.keys() == of_file.keys()
        for name, ends in of_file.items():
            np.testing.assert_array_equal([ranges[name]["min"], ranges[name]["max"]], [ends["min"], ends["max"]])


def test_the_part_that_loses_most_comes_first(classifier, pixels):
    """A hidden unit of large values that nothing reads: the others of its layer get steps too wide."""
    spoiled = type(classifier).from_config(classifier.get_config())
    spoiled.set_weights(classifier.get_weights())
    mlp = spoiled.encoder.blocks[0].mlp
    mlp.hidden.bias.assign(np.where(np.arange(64) == 5, 300.0, mlp.hidden.bias))
    mlp.out.kernel.assign(np.where(np.arange(64)[:, None] == 5, 0.0, mlp.out.kernel))
    first, second, *_ = part_costs(spoiled, "int8", pixels[:20], pixels)
    assert first.part == "block_0/mlp" and 1 - first.cosine > 2 * (1 - second.cosine)


def test_bad_requests_are_refused(toy, pixels):
    with pytest.raises(ValueError, match="in mixed-int8, int8, int16x8. Received: 'float16'"):
        part_costs(toy(), "float16", pixels, pixels)
    with pytest.raises(ValueError, match="has no head to classify with"):
        part_costs(toy(num_classes=0), "int8", pixels, pixels)
    for calibration, checked in ((pixels / 255, pixels), (pixels, pixels / 255)):
        with pytest.raises(ValueError, match="pixels in .0, 255., before `model.preprocess`.*Received values"):
            part_costs(toy(), "int8", calibration, checked)
