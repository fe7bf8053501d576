"""Mixup and CutMix of batches."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data.mixing import cutmix, mixup, mixup_or_cutmix
from keras_vit.recipes.recipe import Augment

NEXT = [1, 2, 3, 4, 5, 0]


@pytest.fixture
def batch():
    """Images (6, 8, 10, 3) of one value each, 0 to 5, and their labels (6, 6)."""
    values = np.arange(6, dtype="float32")
    return tf.constant(np.broadcast_to(values[:, None, None, None], (6, 8, 10, 3))), tf.eye(6)


def key(index):
    return tf.constant([-1, 4 * index], tf.int64)


def test_mixup_mixes_images_and_labels_with_the_same_weight(batch):
    weights, mix = [], tf.function(lambda key: mixup(*batch, 0.8, key))
    for index in range(200):
        images, labels = mix(key(index))
        weight = float(labels[0, 0])
        np.testing.assert_allclose(labels, weight * np.eye(6) + (1 - weight) * np.eye(6)[NEXT], atol=1e-6)
        expected = weight * np.arange(6) + (1 - weight) * np.array(NEXT)
        np.testing.assert_allclose(images[:, 3, 4, 1], expected, atol=1e-5)
        weights.append(weight)
    # Beta(0.8, 0.8) folded at one half has the mean 0.5 + E|x - 0.5|, by simulation 0.769.
    simulated = np.random.default_rng(0).beta(0.8, 0.8, 100_000)
    expected = np.maximum(simulated, 1 - simulated).mean()
    assert min(weights) >= 0.5 and np.mean(weights) == pytest.approx(expected, abs=0.03)


def test_batches_are_mixed_with_the_given_probability(batch):
    augment = Augment(mixup_alpha=0.8, cutmix_alpha=1.0, mix_probability=0.3)
    mix = tf.function(lambda key: mixup_or_cutmix(*batch, augment, key))
    unmixed = [np.array_equal(mix(key(i))[1], batch[1]) for i in range(300)]
    assert np.mean(unmixed) == pytest.approx(0.7, abs=0.08)


@pytest.mark.parametrize("method", [mixup, cutmix])
def test_copies_of_an_image_are_not_mixed_with_each_other(batch, method):
    images, labels = (tf.repeat(values[:4], 2, axis=0) for values in batch)
    mixed, mixed_labels = method(images, labels, 1.0, key(1), 2)
    once, once_labels = method(batch[0][:4], batch[1][:4], 1.0, key(1))
    np.testing.assert_array_equal(mixed, np.repeat(once, 2, axis=0))
    np.testing.assert_array_equal(mixed_labels, np.repeat(once_labels, 2, axis=0))


def test_cutmix_mixes_labels_by_the_area(batch):
    weights = set()
    for index in range(50):
        images, labels = cutmix(*batch, 1.0, key(index))
        replaced = np.isclose(images[0, :, :, 0], 1.0)  # the second image's values
        assert np.isclose(images[0, :, :, 0][~replaced], 0.0).all()
        assert float(labels[0, 1]) == pytest.approx(replaced.mean(), abs=1e-6)
        np.testing.assert_allclose(tf.reduce_sum(labels, axis=1), 1.0, atol=1e-6)
        weights.add(float(labels[0, 1]))
    assert len(weights) > 20


def test_the_key_alone_selects_mixup_or_cutmix(batch):
    augment, is_mixup = Augment(mixup_alpha=0.8, cutmix_alpha=1.0), []
    for index in range(60):
        images, labels = mixup_or_cutmix(*batch, augment, key(index))
        same, _ = mixup_or_cutmix(*batch, augment, key(index))
        np.testing.assert_array_equal(images, same)
        # Mixup of images of one value gives images of one value.
        is_mixup.append(len(np.unique(images[0])) == 1 and 0 < float(labels[0, 0]) < 1)
    assert 15 < sum(is_mixup) < 45
    mixup_only, _ = mixup_or_cutmix(*batch, Augment(mixup_alpha=0.8), key(3))
    np.testing.assert_array_equal(mixup_only, mixup(*batch, 0.8, key(3))[0])


def test_small_alphas_give_finite_values(batch):
    for index in range(100):
        assert np.isfinite(mixup(*batch, 0.01, key(index))[0]).all()
