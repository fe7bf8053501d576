import numpy as np
import pytest

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
    for masked_fraction, expected in ((1.0, np.full(10, MASK)), (0.0, np.arange(10))):
        assert (draw_corruption((0, 0), 4, 10, 1.0, masked_fraction, 0.0).source.numpy() == expected).all()


def test_patches_are_chosen_uniformly():
    drawn = draw_corruption((3, 0), 4000, 8, masked_fraction=0.0, replaced_fraction=1.0)
    counts = np.bincount(drawn.corrupted.numpy().ravel(), minlength=8) / 4000
    np.testing.assert_allclose(counts, 0.5, atol=0.04)
    source = drawn.source.numpy()
    moved = source != np.arange(8)
    assert moved.sum() == 4000 * 4  # a replaced patch never gets its own embedding
    sources_of_first = np.bincount(source[moved[:, 0], 0], minlength=8) / moved[:, 0].sum()
    np.testing.assert_allclose(sources_of_first[1:], 1 / 7, atol=0.03)
