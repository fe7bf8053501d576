import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.training.metrics import TopK, training_metrics


def test_integer_mixed_and_multi_label_targets():
    logits = np.array([[3.0, 2, 1], [1, 2, 3], [2, 3, 1], [0, 0, 0]], "float32")
    numbers = np.array([0, 2, 0, 0])
    assert value(TopK(1), numbers, logits) == 0.75  # of equal logits, the first class wins
    assert value(TopK(2), numbers, logits) == 1.0
    assert value(TopK(1), np.eye(3)[numbers], logits) == 0.75
    mixed = np.array([[0.6, 0.4, 0], [0.7, 0, 0.3], [0, 1, 0], [0, 0.5, 0.5]])
    assert value(TopK(1), mixed, logits) == 0.5  # the larger fraction counts, or either of equal ones
    several = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]])
    assert value(TopK(1), several, logits) == pytest.approx(2 / 3)  # the last has no label
    assert value(TopK(1), several, logits, np.array([1, 1, 0, 1])) == 0.5
    assert value(TopK(1), np.array([0, -1, 0, -1]), logits) == 0.5  # the same


def test_sums_of_an_epoch_are_exact():
    """50,000 images in batches of 12: float32 sums of these weights would lose three images."""
    weight = np.float32(4167 * 12 / 50_000)
    metric, labels = TopK(1), tf.zeros(12, tf.int32)
    logits = tf.constant([[1.0, 0.0]] * 11 + [[0.0, 1.0]])

    def update(step):
        images = tf.where(step < 4166, 12, 8)
        metric.update_state(labels, logits, weight * tf.sequence_mask(images, 12, tf.float32))
        return [step + 1]

    tf.function(lambda: tf.while_loop(lambda step: step < 4167, update, [0]), autograph=False)()
    assert round(float(metric.count) / float(weight)) == 50_000
    assert float(metric.result()) == pytest.approx((4166 * 11 + 8) / 50_000, rel=1e-7)


@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
def test_nonfinite_logits_are_never_right(way):
    """Eagerly, in a graph that Grappler rewrites, or compiled by XLA."""

    def after_one_batch(metric):
        def update(labels, logits):
            metric.update_state(labels, logits)
            return metric.result()

        compiled = update if way == "eager" else tf.function(update, jit_compile=way == "xla")
        return lambda labels, logits: metric.reset_state() or float(compiled(tf.constant(labels), tf.constant(logits)))

    labels = np.array([0, 3, 7, 1])
    logits = 5 * np.eye(8, dtype="float32")[labels]  # all right
    metrics = [after_one_batch(metric) for metric in training_metrics(8)]
    for bad in (np.nan, np.inf, -np.inf):
        spoiled = logits.copy()
        spoiled[0], spoiled[1, 3], spoiled[2, 6] = bad, bad, bad  # all, the correct one, another one; 1 stays right
        for computed in metrics:
            assert computed(labels, logits) == 1.0 and computed(labels, spoiled) == 0.25
            assert computed(np.eye(8, dtype="float32")[labels], spoiled) == 0.25


@pytest.mark.parametrize("floatx", ["float16", "float64"])
def test_any_default_float_of_keras(floatx):
    """keras.json may set it; float16 counts to 2,048."""
    before, logits = keras.config.floatx(), np.tile(np.eye(6, dtype="float32"), (500, 1))  # 3,000 images
    keras.config.set_floatx(floatx)
    try:
        for metric in training_metrics(6, multi_label=True):
            assert value(metric, np.tile(np.eye(6, dtype="float32"), (500, 1)), logits) == pytest.approx(1, abs=1e-6)
            assert metric.total_weight() == 3000
    finally:
        keras.config.set_floatx(before)


def value(metric, *batch):
    metric.reset_state()
    metric.update_state(*batch)
    return float(metric.result())
