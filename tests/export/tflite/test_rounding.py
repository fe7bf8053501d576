"""4-bit weights are rounded with regard to the inputs of their layer."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import write_tflite
from keras_vit.export.parity import logit_cosine
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.graph_rewrite import normalize
from keras_vit.export.tflite.interpreter import read_delegation, run_tflite
from keras_vit.export.tflite.rounding import round_weights

RANDOM = np.random.default_rng(0)


def correlated_inputs(width):
    return RANDOM.standard_normal((400, 8)) @ RANDOM.standard_normal((8, width)) + 0.1 * RANDOM.standard_normal(
        (400, width)
    )


@pytest.mark.parametrize(("width", "block"), [(64, 32), (36, 36)])
def test_errors_cancel_in_the_outputs(width, block):
    inputs, weights = correlated_inputs(width), RANDOM.standard_normal((16, width))
    errors = []
    for moments in (inputs.T @ inputs, np.eye(width)):  # uncorrelated inputs: the nearest integers
        integers, scales = round_weights(weights, moments, 4, block)
        assert integers.dtype == np.int8 and integers.min() >= -8 and integers.max() <= 7
        assert scales.shape == (16, width // block)
        np.testing.assert_array_equal(scales, tf.cast(tf.cast(scales, tf.bfloat16), tf.float32))
        rounded = integers * np.repeat(scales, block, axis=1)
        assert np.abs(rounded - weights).max() < 1.5
        errors.append(np.square(inputs @ (rounded - weights).T).mean())
    assert errors[0] < 0.3 * errors[1], errors


def test_inputs_that_are_zero():
    integers, scales = round_weights(np.zeros((3, 32)), np.zeros((32, 32)), 4, 32)
    assert not integers.any() and np.isfinite(scales).all()


@pytest.mark.slow
def test_calibrated_file_is_more_accurate(classifier, images, artifacts, tmp_path):
    (plain,) = write_tflite(classifier, tmp_path, ["int4-weights"]).values()
    expected = np.asarray(tf.nn.softmax(classifier(normalize(images, classifier.preprocessing))))
    errors = []
    for path in (artifacts["int4-weights"], plain):
        operations = read_graph(path)
        assert sum(one.hybrid and one.inputs[1].dtype == "int4" for one in operations) == 9
        assert read_delegation(path, operations).not_delegated == ()
        found, _ = run_tflite(path, images)
        errors.append(1 - logit_cosine(found, expected).mean())
    assert errors[0] < 0.7 * errors[1], errors
