import math

import numpy as np
import pytest

from keras_vit.recipes.training.optimizers import WarmupDecay


def by_hand(step, rate, decay, warmup, total, stairs=(0.3, 0.6, 0.9)):
    """The formulas of vit_jax (utils.py, create_learning_rate_schedule) and BiT-HyperRule in float64."""
    progress = min(1.0, max(0.0, (step - warmup) / (total - warmup)))
    if decay == "linear":
        rate = 1e-5 + (rate - 1e-5) * (1.0 - progress)
    elif decay == "cosine":
        rate = rate * 0.5 * (1.0 + math.cos(math.pi * progress))
    elif decay == "staircase":
        for fraction in stairs:
            rate /= 10 if step > fraction * total else 1
    return rate * min(1.0, step / warmup) if warmup else rate


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "staircase"])
@pytest.mark.parametrize("warmup,total", [(10_000, 312_000), (500, 20_000), (0, 1_000)])
def test_schedule_equals_the_formula(decay, warmup, total):
    schedule = WarmupDecay(3e-3, decay, warmup, total)
    middle = (warmup + total) // 2
    for step in (0, 1, warmup // 2, max(warmup - 1, 0), warmup, warmup + 1, middle, total - 1, total, total + 7):
        np.testing.assert_allclose(schedule(step), by_hand(step, 3e-3, decay, warmup, total), rtol=1e-6, atol=1e-17)


def test_staircase_equals_bit_hyperrule():
    # bit_hyperrule.py for 20,000 to 500,000 examples: warm-up to 500, then `if s < step: base_lr /= 10` for s of 3,000,
    # 6,000 and 9,000.
    schedule = WarmupDecay(0.003, "staircase", 500, 10_000)
    steps = (250, 500, 3_000, 3_001, 6_000, 6_001, 9_000, 9_001, 9_999)
    expected = (0.0015, 0.003, 0.003, 0.0003, 0.0003, 0.00003, 0.00003, 0.000003, 0.000003)
    np.testing.assert_allclose([schedule(step) for step in steps], expected, rtol=1e-6)


@pytest.mark.parametrize("decay", ["cosine", "staircase"])
def test_config(decay):
    schedule = WarmupDecay(0.1, decay, 0, 100, staircase=(0.2, 0.5))
    copy = WarmupDecay.from_config(schedule.get_config())
    np.testing.assert_allclose(copy(25), by_hand(25, 0.1, decay, 0, 100, (0.2, 0.5)), rtol=1e-6)


@pytest.mark.parametrize(
    "arguments,received",
    [
        ((0.1, "cosine", 100, 100), "warmup_steps=100, total_steps=100"),
        ((0.1, "cosine", -1, 100), "warmup_steps=-1"),
        ((0.1, "exponential", 0, 100), "'exponential'"),
    ],
)
def test_invalid_arguments(arguments, received):
    with pytest.raises(ValueError, match=f"Received: {received}"):
        WarmupDecay(*arguments)
