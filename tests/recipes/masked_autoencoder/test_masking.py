import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_autoencoder.masking import draw_masking, masking_of
from keras_vit.recipes.masked_patch.masking import MASK


@pytest.mark.parametrize("patches,fraction,count", [(16, 0.75, 12), (196, 0.75, 147), (4, 0.01, 1), (4, 0.99, 3)])
def test_masked_fraction_is_exact(patches, fraction, count):
    drawn = draw_masking((0, 0), 8, patches, fraction)
    assert drawn.visible.shape == (8, patches - count) and drawn.masked.shape == (8, count)
    for visible, masked in zip(drawn.visible.numpy(), drawn.masked.numpy()):
        assert sorted([*visible, *masked]) == list(range(patches))


def test_source_is_the_position_among_the_visible_patches():
    drawn = draw_masking((1, 2), 8, 16)
    for visible, masked, source in zip(*(part.numpy() for part in drawn)):
        np.testing.assert_array_equal(source[visible], np.arange(4))
        assert (source[masked] == MASK).all()


def test_patches_are_chosen_uniformly():
    masked = draw_masking((3, 0), 4000, 8, 0.5).masked.numpy()
    np.testing.assert_allclose(np.bincount(masked.ravel(), minlength=8) / 4000, 0.5, atol=0.04)


def test_patches_of_the_largest_noise_are_masked():
    drawn = masking_of(tf.constant([[0.9, 0.1, 0.5, 0.3]]), 0.5)
    assert [part.numpy().tolist() for part in drawn] == [[[1, 3]], [[2, 0]], [[MASK, 0, MASK, 1]]]


def test_draw_depends_on_the_seed_only():
    draw = lambda step: draw_masking((7, step), 8, 20)  # noqa: E731
    compiled = tf.function(lambda step: draw_masking(tf.stack([7, step]), 8, 20))
    for first, again, graph, other in zip(draw(5), draw(5), compiled(tf.constant(5)), draw(6)):
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, graph)
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_invalid_fractions(fraction):
    with pytest.raises(ValueError, match=rf"masked_fraction must be in \(0, 1\).* masked_fraction={fraction}"):
        draw_masking((0, 0), 2, 8, fraction)


def test_single_patch_raises():
    with pytest.raises(ValueError, match="at least two patches per image. Received: 1"):
        draw_masking((0, 0), 2, 1)
