import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import BiT
from keras_vit.recipes.training.losses import Binary, Sigmoid, Softmax, set_head_bias

CLASSES = 7
LOGITS = np.random.default_rng(0).normal(0, 3, (6, CLASSES)).astype("float32")
LABELS = np.array([0, 6, 3, 3, 1, 5])
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
MIXED = 0.3 * ONE_HOT + 0.7 * ONE_HOT[::-1]
SEVERAL = np.maximum(ONE_HOT, ONE_HOT[::-1])


def softmax(labels, smoothing=0.0):
    """The loss of each image by hand."""
    exponentials = np.exp(LOGITS.astype("float64"))
    targets = (1 - smoothing) * labels + smoothing / CLASSES
    return -(targets * np.log(exponentials / exponentials.sum(axis=1, keepdims=True))).sum(axis=1)


def sigmoid(labels, smoothing=0.0):
    """By hand; smoothed labels as `onehot(classes, on=1 - smoothing, off=smoothing)` of big_vision."""
    labels = np.float64(labels) * (1 - smoothing) + (1 - np.float64(labels)) * smoothing
    probabilities = 1 / (1 + np.exp(-LOGITS.astype("float64")))
    return -(labels * np.log(probabilities) + (1 - labels) * np.log(1 - probabilities)).sum(axis=1)


def binary(labels):
    """The mean over classes; mixed labels count fully."""
    return sigmoid(labels > 0) / CLASSES


@pytest.mark.parametrize(
    "loss,by_hand,by_keras",
    [
        *(
            (Softmax(s), lambda y, s=s: softmax(y, s), keras.losses.CategoricalCrossentropy(True, label_smoothing=s))
            for s in (0.0, 0.1)
        ),
        *((Sigmoid(s), lambda y, s=s: sigmoid(y, s), None) for s in (1e-4, 0.1)),
        (Sigmoid(), sigmoid, lambda y, z: CLASSES * keras.losses.BinaryCrossentropy(True)(y, z)),
        (Binary(), binary, lambda y, z: keras.losses.BinaryCrossentropy(True)(np.float32(y > 0), z)),
    ],
    ids=["softmax", "softmax-0.1", "sigmoid-0.0001", "sigmoid-0.1", "sigmoid", "binary"],
)
def test_losses_equal_the_formulas_and_those_of_keras(loss, by_hand, by_keras):
    for labels, targets in ((LABELS, ONE_HOT), (ONE_HOT, ONE_HOT), (MIXED, MIXED), (SEVERAL, SEVERAL)):
        if not (isinstance(loss, Softmax) and labels is SEVERAL):
            assert float(loss(labels, LOGITS)) == pytest.approx(by_hand(targets).mean(), rel=1e-6)
            if by_keras:
                assert float(loss(labels, LOGITS)) == pytest.approx(float(by_keras(targets, LOGITS)), rel=1e-6)


@pytest.mark.parametrize("loss", [Softmax(), Softmax(0.1), Sigmoid(), Sigmoid(0.1)], ids=lambda loss: loss.name)
def test_weights_micro_batches_and_extremes(loss):
    each = np.array([float(loss(LABELS[i : i + 1], LOGITS[i : i + 1])) for i in range(6)])
    weights = np.array([1, 1, 0, 2, 1, 0], "float32")
    assert float(loss(LABELS, LOGITS, sample_weight=weights)) == pytest.approx((each * weights).sum() / 6, rel=1e-6)
    parts = [float(loss(LABELS[i : i + 2], LOGITS[i : i + 2])) for i in (0, 2, 4)]
    assert float(loss(LABELS, LOGITS)) == pytest.approx(np.mean(parts), rel=1e-6)
    large = tf.Variable(1e4 * np.sign(LOGITS))
    with tf.GradientTape() as tape:
        value = loss(LABELS, large)
    assert np.isfinite(value) and np.isfinite(tape.gradient(value, large)).all()


@pytest.mark.parametrize("loss", [Softmax(0.1), Sigmoid(), Binary()], ids=lambda loss: loss.name)
def test_images_without_a_label_have_no_loss(loss):
    unlabeled = np.where(np.arange(6) < 2, LABELS, -1)
    assert float(loss(unlabeled, LOGITS)) == pytest.approx(float(loss(LABELS[:2], LOGITS[:2])) / 3, rel=1e-6)


@pytest.mark.parametrize("values", [LOGITS, np.zeros_like(LOGITS)], ids=["random", "zero"])
def test_gradients(values):
    """Also at 0, where all logits of a new head are: the common form max(x, 0) - x y + ... has no gradient there."""
    exponentials = np.exp(values)
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    for loss, predicted in ((Softmax(), probabilities), (Sigmoid(), 1 / (1 + np.exp(-values)))):
        variable = tf.Variable(values)
        with tf.GradientTape() as tape:
            value = loss(LABELS, variable)
        np.testing.assert_allclose(tape.gradient(value, variable), (predicted - ONE_HOT) / 6, atol=1e-6)


def test_bfloat16_logits_are_summed_in_float32():
    rounded = tf.cast(LOGITS, tf.bfloat16)
    for loss in (Softmax(), Sigmoid()):
        assert loss(LABELS, rounded).dtype == "float32"
        assert float(loss(LABELS, rounded)) == pytest.approx(float(loss(LABELS, np.array(rounded, "float32"))))


def test_head_bias(toy, images):
    deit = toy(distillation=True)
    for model in (deit, BiT(stages=(1,), width_factor=0.5, num_classes=5)):
        set_head_bias(model, -10.0)
        np.testing.assert_array_equal(model(images), np.full((3, 5), -10.0))
    np.testing.assert_array_equal(deit.head_distillation.bias, np.full(5, -10.0))
    # log(1 + e^-10) per class, and 10 for the correct one, instead of the 5 log 2 of a bias of 0.
    labels = np.array([0, 1, 2])
    assert float(Sigmoid()(labels, deit(images))) == pytest.approx(10 + 5 * np.log1p(np.exp(-10)), rel=1e-5)
