import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import BiT
from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.training.losses import Binary, Sigmoid, Softmax, build_loss, set_head_bias

CLASSES = 7


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 3, (6, CLASSES)).astype("float32")


@pytest.fixture
def labels():
    return np.array([0, 6, 3, 3, 1, 5])


def one_hot(labels):
    return np.eye(CLASSES, dtype="float32")[labels]


def softmax_by_hand(logits, labels, smoothing):
    logits = logits.astype("float64")
    exponentials = np.exp(logits)
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    targets = (1 - smoothing) * labels + smoothing / CLASSES
    return -(targets * np.log(probabilities)).sum(axis=1)


def sigmoid_by_hand(logits, labels, smoothing=0.0):
    """Smoothed labels as `onehot(classes, on=1 - smoothing, off=smoothing)` of big_vision."""
    labels = np.float64(labels) * (1 - smoothing) + (1 - np.float64(labels)) * smoothing
    probabilities = 1 / (1 + np.exp(-logits.astype("float64")))
    return -(labels * np.log(probabilities) + (1 - labels) * np.log(1 - probabilities)).sum(axis=1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax(logits, labels, smoothing):
    loss = Softmax(smoothing)
    expected = softmax_by_hand(logits, one_hot(labels), smoothing).mean()
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
    assert float(loss(one_hot(labels), logits)) == pytest.approx(expected, rel=1e-6)
    mixed = 0.3 * one_hot(labels) + 0.7 * one_hot(labels[::-1])
    expected = softmax_by_hand(logits, mixed, smoothing).mean()
    assert float(loss(mixed, logits)) == pytest.approx(expected, rel=1e-6)
    keras_loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    assert float(loss(mixed, logits)) == pytest.approx(float(keras_loss(mixed, logits)), rel=1e-6)


def test_binary_is_the_mean_over_classes_and_mixed_labels_count_fully(logits, labels):
    mixed = 0.2 * one_hot(labels) + 0.8 * one_hot(labels[::-1])
    expected = sigmoid_by_hand(logits, mixed > 0).mean() / CLASSES
    assert float(Binary()(mixed, logits)) == pytest.approx(expected, rel=1e-6)
    assert float(Binary()(labels, logits)) == pytest.approx(sigmoid_by_hand(logits, one_hot(labels)).mean() / CLASSES)
    keras_loss = keras.losses.BinaryCrossentropy(from_logits=True)
    assert float(Binary()(mixed, logits)) == pytest.approx(float(keras_loss(np.float32(mixed > 0), logits)), rel=1e-6)
    assert isinstance(build_loss(Supervised(loss="binary")), Binary)
    with pytest.raises(ValueError, match="label_smoothing=0.1. Use label_smoothing=0 or loss='sigmoid'"):
        build_loss(Supervised(loss="binary", label_smoothing=0.1))


def test_sigmoid_is_summed_over_classes(logits, labels):
    expected = sigmoid_by_hand(logits, one_hot(labels)).mean()
    assert float(Sigmoid()(labels, logits)) == pytest.approx(expected, rel=1e-6)
    several = np.maximum(one_hot(labels), one_hot(labels[::-1]))
    for targets in (several, 0.2 * one_hot(labels) + 0.8 * one_hot(labels[::-1])):
        expected = sigmoid_by_hand(logits, targets).mean()
        assert float(Sigmoid()(targets, logits)) == pytest.approx(expected, rel=1e-6)
    by_keras = keras.losses.BinaryCrossentropy(from_logits=True)(several, logits)  # the mean over classes
    assert float(Sigmoid()(several, logits)) == pytest.approx(CLASSES * float(by_keras), rel=1e-6)


@pytest.mark.parametrize("smoothing", [1e-4, 0.1])
def test_smoothed_sigmoid(logits, labels, smoothing):
    loss = Sigmoid(smoothing)
    for targets in (one_hot(labels), 0.2 * one_hot(labels) + 0.8 * one_hot(labels[::-1])):
        expected = sigmoid_by_hand(logits, targets, smoothing).mean()
        assert float(loss(targets, logits)) == pytest.approx(expected, rel=1e-6)
    assert float(loss(labels, logits)) == float(loss(one_hot(labels), logits))
    # The least loss is at the log odds of the smoothed label, log(1 / s - 1), not at infinity.
    odds = np.log(1 / smoothing - 1)
    values = [float(loss(labels, (2 * one_hot(labels) - 1) * odds * factor)) for factor in (0.9, 1.0, 1.1)]
    assert values[1] == min(values)


@pytest.mark.parametrize("loss", [Softmax(), Softmax(0.1), Sigmoid(), Sigmoid(0.1)], ids=lambda loss: loss.name)
def test_weights_micro_batches_and_extremes(loss, logits, labels):
    each = np.array([float(loss(labels[i : i + 1], logits[i : i + 1])) for i in range(6)])
    weights = np.array([1, 1, 0, 2, 1, 0], "float32")
    assert float(loss(labels, logits, sample_weight=weights)) == pytest.approx((each * weights).sum() / 6, rel=1e-6)
    parts = [float(loss(labels[i : i + 2], logits[i : i + 2])) for i in (0, 2, 4)]
    assert float(loss(labels, logits)) == pytest.approx(np.mean(parts), rel=1e-6)
    large = tf.Variable(1e4 * np.sign(logits))
    with tf.GradientTape() as tape:
        value = loss(labels, large)
    assert np.isfinite(value) and np.isfinite(tape.gradient(value, large)).all()


@pytest.mark.parametrize("loss", [Softmax(0.1), Sigmoid(), Binary()], ids=lambda loss: loss.name)
def test_images_without_a_label_have_no_loss(loss, logits, labels):
    unlabeled = np.where(np.arange(6) < 2, labels, -1)
    assert float(loss(unlabeled, logits)) == pytest.approx(float(loss(labels[:2], logits[:2])) / 3, rel=1e-6)


def test_gradients(logits, labels):
    """Also at 0, where all logits of a new head are: the common form max(x, 0) - x y + ... has no gradient there."""
    targets = one_hot(labels)
    for values in (logits, np.zeros_like(logits)):
        exponentials = np.exp(values)
        expected = {
            Softmax(): exponentials / exponentials.sum(axis=1, keepdims=True) - targets,
            Sigmoid(): 1 / (1 + np.exp(-values)) - targets,
        }
        for loss, gradient in expected.items():
            variable = tf.Variable(values)
            with tf.GradientTape() as tape:
                value = loss(labels, variable)
            np.testing.assert_allclose(tape.gradient(value, variable), gradient / 6, atol=1e-6)


def test_labels_of_imagenet_21k():
    labels, logits = np.array([21842, 16777]), np.zeros((2, 21843), "float32")
    logits[[0, 1], labels] = 30.0
    assert float(Softmax()(labels, logits)) == pytest.approx(0.0, abs=1e-6)


def test_bfloat16_logits_are_summed_in_float32(logits, labels):
    rounded = tf.cast(logits, tf.bfloat16)
    for loss in (Softmax(), Sigmoid()):
        assert loss(labels, rounded).dtype == "float32"
        assert float(loss(labels, rounded)) == pytest.approx(float(loss(labels, np.array(rounded, "float32"))))


@pytest.mark.parametrize("loss", [Softmax(0.1), Sigmoid(0.2)], ids=["softmax", "sigmoid"])
def test_serialization(loss, logits, labels, tmp_path):
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(copy) is type(loss) and copy.get_config() == loss.get_config()
    assert float(copy(labels, logits)) == float(loss(labels, logits))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(CLASSES)])
    model.compile("sgd", loss)
    model.save(tmp_path / "x.keras")
    assert keras.saving.load_model(tmp_path / "x.keras").loss.get_config() == loss.get_config()


@pytest.mark.slow
def test_two_replicas_equal_one():
    random = np.random.default_rng(1)
    images, labels = random.normal(0, 1, (16, 5)).astype("float32"), random.integers(0, CLASSES, 16)
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    two = tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
    results = []
    for strategy in (tf.distribute.get_strategy(), two):
        with strategy.scope():
            model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(CLASSES, kernel_initializer="ones")])
            model.compile(keras.optimizers.SGD(0.5), Softmax(0.1))
        batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8, drop_remainder=True)
        history = model.fit(batches, epochs=2, shuffle=False, verbose=0).history["loss"]
        results.append((history, model.get_weights()))
    (one, weights), (other, other_weights) = results
    np.testing.assert_allclose(one, other, rtol=1e-5)
    for first, second in zip(weights, other_weights):
        np.testing.assert_allclose(first, second, atol=1e-6)


def test_build_loss():
    assert build_loss(Supervised(label_smoothing=0.2)).get_config()["label_smoothing"] == 0.2
    assert isinstance(build_loss(Supervised(loss="sigmoid")), Sigmoid)
    assert build_loss(Supervised(loss="sigmoid", label_smoothing=1e-4)).label_smoothing == 1e-4
    with pytest.raises(ValueError, match=r"sigmoid loss must be in \[0, 0.5\). Received: 0.5"):
        build_loss(Supervised(loss="sigmoid", label_smoothing=0.5))
    with pytest.raises(ValueError, match="must be 'softmax', 'sigmoid' or 'binary'. Received: 'hinge'"):
        build_loss(Supervised(loss="hinge"))
    with pytest.raises(ValueError, match=r"must be in \[0, 1\). Received: 1.0"):
        Softmax(1.0)


def test_head_bias(toy, images):
    for model in (toy(distillation=True), BiT(stages=(1,), width_factor=0.5, num_classes=5)):
        set_head_bias(model, -10.0)
        np.testing.assert_array_equal(model(images), np.full((3, 5), -10.0))
    deit = toy(distillation=True)
    set_head_bias(deit, -10.0)
    np.testing.assert_array_equal(deit.head_distillation.bias, np.full(5, -10.0))
    # log(1 + e^-10) per class, and 10 for the correct one, instead of the 5 log 2 of a bias of 0.
    labels = np.array([0, 1, 2])
    assert float(Sigmoid()(labels, deit(images))) == pytest.approx(10 + 5 * np.log1p(np.exp(-10)), rel=1e-5)
    with pytest.raises(ValueError, match="has no head to set the bias of"):
        set_head_bias(toy(num_classes=0), -10.0)
