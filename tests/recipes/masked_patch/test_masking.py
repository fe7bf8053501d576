import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.masked_patch.masking import MASK, draw_corruption


@pytest.mark.parametrize(
    "patches,fraction,count", [(16, 0.5, 8), (49, 0.5, 24), (196, 0.15, 29), (4, 0.01, 1), (9, 1.0, 9)]
)
def test_corrupted_fraction_is_exact(patches, fraction, count):
    drawn = draw_corruption((0, 0), 32, patches, fraction)
    assert drawn.corrupted.shape == (32, count)
    for row in drawn.corrupted.numpy():
        assert len(set(row)) == count and 0 <= min(row) and max(row) < patches


def test_masked_and_replaced_fractions():
    drawn = draw_corruption((1, 2), 500, 100)
    masked = drawn.source.numpy() == MASK
    moved = (drawn.source.numpy() != np.arange(100)) & ~masked
    corrupted = np.zeros((500, 100), bool)
    np.put_along_axis(corrupted, drawn.corrupted.numpy(), True, axis=1)
    assert not (masked & ~corrupted).any() and not (moved & ~corrupted).any()
    fractions = masked.sum() / corrupted.sum(), moved.sum() / corrupted.sum()
    np.testing.assert_allclose(fractions, (0.8, 0.1), atol=0.01)


def test_patches_are_chosen_uniformly():
    drawn = draw_corruption((3, 0), 4000, 8, masked_fraction=0.0, replaced_fraction=1.0)
    counts = np.bincount(drawn.corrupted.numpy().ravel(), minlength=8) / 4000
    np.testing.assert_allclose(counts, 0.5, atol=0.04)
    source = drawn.source.numpy()
    moved = source != np.arange(8)
    assert moved.sum() == 4000 * 4  # a replaced patch never gets its own embedding
    sources_of_first = np.bincount(source[moved[:, 0], 0], minlength=8) / moved[:, 0].sum()
    np.testing.assert_allclose(sources_of_first[1:], 1 / 7, atol=0.03)


def test_fractions_of_zero_and_one():
    everything = draw_corruption((0, 0), 4, 10, 1.0, masked_fraction=1.0, replaced_fraction=0.0)
    assert (everything.source.numpy() == MASK).all()
    nothing = draw_corruption((0, 0), 4, 10, 1.0, masked_fraction=0.0, replaced_fraction=0.0)
    assert (nothing.source.numpy() == np.arange(10)).all()


def test_draw_depends_on_the_seed_only():
    draw = lambda step: draw_corruption((7, step), 8, 20)  # noqa: E731
    compiled = tf.function(lambda step: draw_corruption(tf.stack([7, step]), 8, 20))
    for first, again, graph, other in zip(draw(5), draw(5), compiled(tf.constant(5)), draw(6)):
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, graph)
        assert not np.array_equal(first, other)


def test_shapes_are_static():
    dataset = tf.data.Dataset.range(1).map(lambda i: draw_corruption(tf.stack([i, i]), 8, 20))
    shapes = [tuple(spec.shape) for spec in dataset.element_spec]
    assert shapes == [(8, 10), (8, 20)]


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"corrupted_fraction": 0.0}, r"`corrupted_fraction` must be in \(0, 1\]. Received: 0.0"),
        ({"corrupted_fraction": 1.5}, "Received: 1.5"),
        ({"masked_fraction": 0.8, "replaced_fraction": 0.3}, "their sum at most 1. Received: 0.8 and 0.3"),
        ({"masked_fraction": -0.1}, "must be at least 0"),
    ],
)
def test_invalid_fractions(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw_corruption((0, 0), 2, 8, **arguments)


def test_single_patch_raises():
    with pytest.raises(ValueError, match="at least two patches"):
        draw_corruption((0, 0), 2, 1)
