"""Ranges of activations."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.tflite.calibration import activation_ranges, best_range
from keras_vit.export.tflite.quantize import quantize

pytestmark = pytest.mark.slow


def error(values, low, high):
    step = (high - low) / 255
    return np.square(np.clip(np.round((values - low) / step), 0, 255) * step + low - values).mean()


def test_outliers_are_clipped():
    values = np.append(np.random.default_rng(0).standard_normal(100_000), [60.0])
    low, high = best_range(values, values.min(), 60.0)
    assert high < 58 and error(values, low, high) < error(values, values.min(), 60.0)


def test_uniform_values_keep_their_range():
    values = np.linspace(-1, 2, 10_000)
    np.testing.assert_allclose(best_range(values, -1.0, 2.0), (-1, 2), atol=0.1)


def test_range_of_a_constant_includes_zero():
    assert best_range(np.zeros(10), 0.0, 0.0) == (0.0, 0.0)
    low, high = best_range(np.full(10, 3.0), 3.0, 3.0)
    assert low == 0 and high == pytest.approx(3, rel=0.02)


def test_ranges_of_a_model(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    widest, narrow = (activation_ranges(float32, images[:20], clip=clip) for clip in (False, True))
    assert widest.keys() == narrow.keys() and len(widest) > 50
    for name in widest:
        assert min(0.0, widest[name]["min"].item()) - 1e-6 <= narrow[name]["min"].item()
        assert narrow[name]["max"].item() <= max(0.0, widest[name]["max"].item()) + 1e-6
    widths = [[ends["max"].item() - ends["min"].item() for ends in ranges.values()] for ranges in (narrow, widest)]
    assert any(cut < 0.95 * whole for cut, whole in zip(*widths))
    pixels = next(value for name, value in widest.items() if "images" in name)
    assert (pixels["min"].item(), pixels["max"].item()) == (0, 255)


def test_input_range_is_0_to_255_for_dark_images_too(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    content = quantize(float32, "int8", activation_ranges(float32, 0.7 * images[:20]))
    (image,) = Interpreter(model_content=content).get_input_details()
    assert image["quantization"] == (1.0, 0)


def test_keep_float(artifacts, images):
    float32 = artifacts["float32"].read_bytes()
    ranges = activation_ranges(float32, images[:20])
    sizes = [len(quantize(float32, "mixed-int8", ranges, keep)) for keep in ((), (".*mlp.*",), (".*",))]
    assert sizes[0] < sizes[1] < sizes[2]
