import numpy as np
import pytest
import tensorflow as tf
from official.vision.ops import augment as official

from keras_vit.recipes.data import image_ops as image_ops
from keras_vit.recipes.data.augment import ATTEMPTS, augmentation, erase
from keras_vit.recipes.data.mixing import cutmix, mix, mixup
from keras_vit.recipes.recipe import Augment

RECTANGULAR = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "Color", "Contrast", "Brightness")


@pytest.fixture
def image():
    """(24, 32, 3) uint8, smooth, with some values that never come."""
    y, x = np.mgrid[:24, :32]
    waves = np.stack([np.sin(y / 5 + x / 9), np.cos(x / 7), np.sin(y / 3) * np.cos(x / 4)], axis=-1)
    return tf.constant(np.round(110 + 90 * waves), tf.uint8)


def applied(name, image, level, sign=1.0, place=(0.5, 0.5)):
    return image_ops.operations()[name](image, level, tf.constant(sign), tf.constant(place)).numpy().astype(int)


def by_official(name, image, level):
    function, _, arguments = official._parse_policy_info(name, 1.0, level, [128] * 3, 40.0, 100.0)
    return function(image, None, *arguments)[0].numpy().astype(int)


@pytest.mark.parametrize("level", [0.0, 2.0, 7.0, 10.0, 15.0, 20.0, 30.0])
@pytest.mark.parametrize("name", [*RECTANGULAR, "Sharpness", "SolarizeAdd"])
def test_values_change_as_in_tf_models_official(image, name, level):
    # Sharpness: an exact thirteenth may be rounded down to the value below, there as here.
    tolerance = 1 + level / 5 if name == "Sharpness" else 0
    assert np.abs(applied(name, image, level) - by_official(name, image, level)).max() <= tolerance


def test_flat_channels_stay():
    flat = tf.constant(np.full((8, 8, 3), 77), tf.uint8)
    for name in ("AutoContrast", "Equalize", "Sharpness"):
        np.testing.assert_array_equal(applied(name, flat, 10.0), flat)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_geometry_is_that_of_tf_models_official_with_gray_outside(image, name, sign, monkeypatch):
    monkeypatch.setattr(official, "_randomly_negate_tensor", lambda value: value * sign)
    found = applied(name, image, 6.0, sign)
    # Its translations are in pixels; ours grow with the image. It mirrors what is outside, unless it is filled.
    function, _, (argument, _) = official._parse_policy_info(name, 1.0, 6.0, [128] * 3, 40.0, 100.0)
    if name.startswith("Translate"):
        argument = round(60 * 32 / 224) * sign

    def transform(image, transforms):
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=tf.reshape(image, (1, 24, 32, 4)),
            transforms=tf.reshape(tf.cast(transforms, tf.float32), (1, 8)),
            output_shape=(24, 32),
            fill_value=0.0,
            fill_mode="CONSTANT",
            interpolation="NEAREST",
        )
        return tf.reshape(moved, image.shape)

    def translated(image, moves):
        return transform(image, official._convert_translation_to_transform(moves))

    monkeypatch.setattr(official, "transform", transform)
    monkeypatch.setattr(official, "translate", translated)
    expected = function(image, None, argument, [128] * 3)[0].numpy().astype(int)
    assert (found == 128).all(axis=-1).any()
    assert (found != expected).any(axis=-1).mean() < 0.02  # coordinates that lie between two pixels


def test_translating_by_more_than_the_image_leaves_gray(image):
    assert (applied("TranslateX", image[:, :8], 30.0) == applied("TranslateX", image[:, :8], 30.0, -1.0)).all()
    moved = applied("TranslateY", image, 10.0, 1.0)
    np.testing.assert_array_equal(moved[:-14], image[14:])
    assert (moved[-14:] == 128).all()


def test_cutout_is_a_square_around_its_place(image):
    half = round(40 * 32 / 224)
    cut = applied("Cutout", image, 10.0, place=(0.5, 0.0))
    np.testing.assert_array_equal(cut[12 - half : 12 + half, :half], 128)
    cut[12 - half : 12 + half, :half] = image[12 - half : 12 + half, :half]
    np.testing.assert_array_equal(cut, image)


@pytest.mark.parametrize("augment", [Augment(randaugment_layers=2), Augment(autoaugment=True)])
def test_policies_depend_on_their_numbers_only(image, augment):
    distort, draws = augmentation(augment)
    distort = tf.function(distort)
    numbers = np.random.default_rng(0).random((60, draws)).astype("float32")
    first = [distort(image, tf.constant(number)).numpy() for number in numbers]
    tf.random.set_seed(77)
    for found, number in zip(first, numbers):
        assert found.shape == image.shape and found.dtype == np.uint8
        np.testing.assert_array_equal(distort(image, tf.constant(number)), found)
    assert len({found.tobytes() for found in first}) > 15


def test_randaugment_applies_the_operations_that_are_drawn(image):
    distort, draws = augmentation(Augment(randaugment_layers=2, randaugment_magnitude=10))
    names = list(image_ops.operations())
    assert names == official.RandAugment().available_ops and draws == 8
    for first, second in (("Invert", "Color"), ("ShearX", "Posterize"), ("TranslateY", "Cutout")):
        numbers = [(names.index(first) + 0.5) / 17, 0.9, 0.2, 0.3, (names.index(second) + 0.5) / 17, 0.1, 0.7, 0.6]
        expected = applied(first, image, 10.0, 1.0, (0.2, 0.3))
        expected = applied(second, tf.cast(expected, tf.uint8), 10.0, -1.0, (0.7, 0.6))
        np.testing.assert_array_equal(distort(image, tf.constant(numbers)), expected)
    np.testing.assert_array_equal(distort(image, tf.fill((8,), 0.99)), image)  # the 17th is none


def test_autoaugment_keeps_to_the_probabilities(image):
    distort, _ = augmentation(Augment(autoaugment=True))
    pair = 2.5 / 25  # Equalize with probability 0.8 at level 8, then with 0.6 at level 3
    nothing = distort(image, tf.constant([pair, 0.81, 0.5, 0.5, 0.5, 0.61, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(nothing, image)
    once = distort(image, tf.constant([pair, 0.79, 0.5, 0.5, 0.5, 0.61, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(once, applied("Equalize", image, 8.0))


def test_policies_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="RandAugment replaces AutoAugment"):
        augmentation(Augment(randaugment_layers=2, autoaugment=True))
    with pytest.raises(ValueError, match=r"`randaugment_magnitude` must be in \[0, 30\]. Received: 31"):
        augmentation(Augment(randaugment_layers=2, randaugment_magnitude=31))


def test_erasing_puts_noise_into_one_rectangle():
    image, erased, areas = tf.fill((32, 40, 3), 7.0), 0, []
    for number in range(200):
        draws = tf.random.stateless_uniform((1 + 4 * ATTEMPTS,), (1, number))
        found = erase(image, 0.25, draws, (2, number)).numpy()
        changed = (found != 7.0).all(axis=-1)
        if changed.any():
            rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
            assert changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
            areas.append(changed.mean())
            erased += 1
    assert 30 < erased < 70
    assert 0.015 < min(areas) < 0.08 and 0.25 < max(areas) < 0.36


@pytest.fixture
def batch():
    """Images (6, 8, 10, 3) of one value each, 0 to 5, and their labels (6, 6)."""
    values = np.arange(6, dtype="float32")
    return tf.constant(np.broadcast_to(values[:, None, None, None], (6, 8, 10, 3))), tf.eye(6)


def key(number):
    return tf.constant([-1, 4 * number], tf.int64)


def test_mixup_mixes_images_and_labels_alike(batch):
    shares = []
    for number in range(200):
        images, labels = mixup(*batch, 0.8, key(number))
        share = float(labels[0, 0])
        np.testing.assert_allclose(labels, share * np.eye(6) + (1 - share) * np.eye(6)[[1, 2, 3, 4, 5, 0]], atol=1e-6)
        expected = share * np.arange(6) + (1 - share) * np.array([1, 2, 3, 4, 5, 0])
        np.testing.assert_allclose(images[:, 3, 4, 1], expected, atol=1e-5)
        shares.append(share)
    # Beta(0.8, 0.8) folded at one half has the mean 0.5 + E|x - 0.5|, by simulation 0.769.
    simulated = np.random.default_rng(0).beta(0.8, 0.8, 100_000)
    assert min(shares) >= 0.5 and np.mean(shares) == pytest.approx(
        np.maximum(simulated, 1 - simulated).mean(), abs=0.03
    )


def test_cutmix_labels_follow_the_area(batch):
    shares = set()
    for number in range(50):
        images, labels = cutmix(*batch, 1.0, key(number))
        taken = np.isclose(images[0, :, :, 0], 1.0)  # the second image's values
        assert np.isclose(images[0, :, :, 0][~taken], 0.0).all()
        assert float(labels[0, 1]) == pytest.approx(taken.mean(), abs=1e-6)
        np.testing.assert_allclose(tf.reduce_sum(labels, axis=1), 1.0, atol=1e-6)
        shares.add(float(labels[0, 1]))
    assert len(shares) > 20


def test_a_batch_is_mixed_by_either_and_by_its_key_only(batch):
    augment, kinds = Augment(mixup_alpha=0.8, cutmix_alpha=1.0), []
    for number in range(60):
        images, labels = mix(*batch, augment, key(number))
        again, _ = mix(*batch, augment, key(number))
        np.testing.assert_array_equal(images, again)
        kinds.append(len(np.unique(images[0])) == 1 and 0 < float(labels[0, 0]) < 1)
    assert 15 < sum(kinds) < 45  # a mixed image of one value is one value again
    alone, _ = mix(*batch, Augment(mixup_alpha=0.8), key(3))
    np.testing.assert_array_equal(alone, mixup(*batch, 0.8, key(3))[0])


def test_tiny_alphas_give_numbers(batch):
    for number in range(100):
        assert np.isfinite(mixup(*batch, 0.01, key(number))[0]).all()
