"""Intervals and tests of counts, against SciPy."""

import pytest
from scipy.stats import binomtest

from keras_vit.intervals import binomial_p_value, percent, wilson_interval


@pytest.mark.parametrize(
    "count,total,share", [(0, 1, 0.5), (8, 10, 0.5), (32, 48, 2 / 3), (7, 500, 0.02), (48, 48, 0.9)]
)
def test_equal_to_scipy(count, total, share):
    test = binomtest(count, total, share, alternative="greater")
    assert binomial_p_value(count, total, share) == pytest.approx(test.pvalue, rel=1e-9)
    ends = binomtest(count, total).proportion_ci(method="wilson")
    assert wilson_interval(count, total) == pytest.approx((ends.low, ends.high), abs=1e-7)


def test_many_images():
    test = binomtest(5_100, 50_000, 0.1, alternative="greater")
    assert binomial_p_value(5_100, 50_000, 0.1) == pytest.approx(test.pvalue, rel=1e-6)
    assert binomial_p_value(10, 10, 1.0) == 1.0 and binomial_p_value(9, 10, 1.0) == 1.0


def test_percentages_have_the_digits_that_say_something():
    assert percent(32, 48) == "66.7 % [52.5, 78.3], 32 of 48 images"
    assert percent(1_999, 2_000).startswith("99.95 % [99.7")
