"""How much a count says: the interval of a fraction, and the test against a fixed one."""

import math

_NORMAL_QUANTILE = 1.959964  # 97.5 %
RESAMPLES = 10_000  # of a bootstrap
_EXACT_DIGITS = 1_000  # images from which a second digit of a percentage says something


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """95 % interval of a fraction, count / total (Wilson, 1927); it has a width even where all or none count."""
    fraction, square = count / total, _NORMAL_QUANTILE**2
    center = (fraction + square / (2 * total)) / (1 + square / total)
    half = (
        _NORMAL_QUANTILE / (1 + square / total) * (fraction * (1 - fraction) / total + square / (4 * total**2)) ** 0.5
    )
    return max(center - half, 0.0), min(center + half, 1.0)


def binomial_p_value(count: int, total: int, probability: float) -> float:
    """The exact probability of at least `count` of `total`, each with `probability` in [0, 1] (binomial test)."""
    if probability in (0.0, 1.0) or count <= 0:
        return float(count <= total * probability)
    odds = math.log(probability), math.log1p(-probability)
    ways = math.lgamma(total + 1)
    terms = (
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * odds[0] + (total - k) * odds[1])
        for k in range(count, total + 1)
    )
    return min(math.fsum(terms), 1.0)


def paired_interval(before, after) -> tuple[float, float]:
    """95 % interval of mean(before) - mean(after) for the same images, bool (n,): a paired bootstrap.

    Images are drawn again with replacement, each with both results (Efron and Tibshirani, "An Introduction to the
    Bootstrap", 1993, section 13.3). A draw is fully described by the numbers of images with a difference of -1, 0, 1.
    """
    import numpy as np  # the other functions are also those of help pages

    difference = np.asarray(before, "int8") - np.asarray(after, "int8")
    counts = [(difference == value).sum() for value in (-1, 0, 1)]
    if counts[0] > counts[2]:  # the draws of the opposite difference, so that its interval is the opposite
        low, high = paired_interval(after, before)
        return -high, -low
    # One more image of each change: else a few images without a change would have no interval (Bonett and Price, 2012).
    shares = np.add(counts, (1, 0, 1)) / (len(difference) + 2)
    gained, _, lost = np.random.default_rng(0).multinomial(len(difference), shares, RESAMPLES).T
    low, high = np.percentile((lost - gained) / len(difference), (2.5, 97.5))
    return float(low), float(high)


def percent(count: int, total: int) -> str:
    """A fraction of images with Wilson's interval, such as "66.7 % [52.5, 78.3], 32 of 48 images"."""
    return ", ".join(percent_and_count(count, total, wilson_interval(count, total)))


def percent_and_count(count: int, total: int, interval: tuple[float, float]) -> tuple[str, str]:
    """A fraction of images with an interval, such as "66.7 % [52.5, 78.3]", and "32 of 48 images"."""
    digits = 2 if total >= _EXACT_DIGITS else 1
    low, high = (f"{100 * end:.{digits}f}" for end in interval)
    return f"{100 * count / total:.{digits}f} % [{low}, {high}]", f"{count:,} of {total:,} images"
