import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data import evaluation_batches, open_dataset
from keras_vit.recipes.evaluation.classification_metrics import ClassificationMetrics
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.training.losses import Softmax
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


def test_many_images_against_sorting():
    random = np.random.default_rng(0)
    logits = random.integers(0, 20, (500, 30)).astype("float32")  # many ties
    labels = random.integers(0, 30, 500)
    order = np.argsort(-logits, axis=1, kind="stable")
    for k in (1, 5):
        expected = np.mean((order[:, :k] == labels[:, None]).any(axis=1))
        assert value(TopK(k), labels, logits) == pytest.approx(expected, abs=1e-7)


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


def test_training_metrics():
    assert [(metric.name, metric.k) for metric in training_metrics(6)] == [("top1", 1), ("top5", 5)]
    assert [metric.name for metric in training_metrics(5)] == ["top1"]
    copy = keras.metrics.deserialize(keras.metrics.serialize(TopK(5, name="top5")))
    assert (copy.k, copy.name) == (5, "top5")


@pytest.fixture
def evaluated(strategy_of):
    def evaluate(batches, classes, size):
        """Metrics of a random linear classifier by Keras, on two replicas, and the model."""
        kernel = keras.initializers.RandomNormal(seed=3)
        with strategy_of(2).scope():
            layers = [keras.layers.Flatten(), keras.layers.Dense(classes, kernel_initializer=kernel)]
            model = keras.Sequential([keras.Input((size, size, 3)), *layers])
            options = {"weighted_metrics": training_metrics(classes), "steps_per_execution": 2}
            model.compile("sgd", Softmax(), **options, jit_compile=False)
        return model.evaluate(batches, verbose=0, return_dict=True), model

    return evaluate


@pytest.mark.slow
def test_every_image_counts_once_under_a_strategy(data_dir, evaluated):
    data = Data(dataset="digits", data_dir=data_dir, image_size=8, batch_size=6, test_split="test[:43]")
    dataset = open_dataset(data)
    batches = evaluation_batches(data, dataset, "test[:43]")
    found, model = evaluated(batches, 10, 8)
    images, labels, weights = (np.concatenate(parts) for parts in zip(*batches.as_numpy_iterator()))
    assert len(images) == 48 and (weights > 0).sum() == 43
    real = ClassificationMetrics(10)
    real.update(np.asarray(model(images))[weights > 0], labels[weights > 0])
    summary = real.summary()
    assert summary["counted"] == 43 and 0 < summary["top1"] < summary["top5"] < 1
    assert found["top1"] == pytest.approx(summary["top1"], abs=1e-6)
    assert found["top5"] == pytest.approx(summary["top5"], abs=1e-6)
    assert found["loss"] == pytest.approx(summary["negative_log_likelihood"], abs=1e-5)
