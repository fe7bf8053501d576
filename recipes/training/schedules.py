"""Learning-rate schedules of the paper and of BiT."""

import math

import keras
from keras import ops

DECAYS = ("cosine", "linear", "constant", "staircase")


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup from 0, then decay, as google-research/vision_transformer (utils.py).

    Steps start at 0. With p the completed fraction of the steps after warmup: "cosine" is rate * (1 + cos(pi p)) / 2;
    "linear" is end + (rate - end) * (1 - p) with end 1e-5; both times min(1, step / warmup_steps). "staircase" divides
    the rate by 10 after each fraction of `total_steps`, as BiT-HyperRule (google-research/big_transfer,
    bit_hyperrule.py, `s < step`: from step 3,001, 6,001 and 9,001 of 10,000 on).

    Args:
        learning_rate: Peak.
        decay: "cosine", "linear", "constant" or "staircase".
        warmup_steps, total_steps: Lengths in steps.
        staircase: Fractions of `total_steps` in (0, 1), increasing; for "staircase" only.

    Raises:
        ValueError: An unknown decay, or a warmup as long as the run.
    """

    LINEAR_END = 1e-5

    def __init__(
        self,
        learning_rate: float,
        decay: str,
        warmup_steps: int,
        total_steps: int,
        staircase: tuple[float, ...] = (0.3, 0.6, 0.9),
    ):
        if decay not in DECAYS:
            raise ValueError(f"`decay` must be one of {', '.join(DECAYS)}. Received: {decay!r}")
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "warmup_steps must be at least 0 and less than total_steps. Received: "
                f"warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        self.learning_rate, self.decay, self.staircase = learning_rate, decay, tuple(staircase)
        self.warmup_steps, self.total_steps = warmup_steps, total_steps

    def __call__(self, step):
        rate, warmup, total = self.learning_rate, self.warmup_steps, self.total_steps
        step = ops.cast(step, "float32")
        # 1 - p; cosine as sin(pi (1 - p) / 2)^2, which does not cancel in float32 near the end.
        remaining = ops.clip((total - step) / (total - warmup), 0.0, 1.0)
        if self.decay == "cosine":
            value = rate * ops.square(ops.sin(0.5 * math.pi * remaining))
        elif self.decay == "linear":
            value = self.LINEAR_END + (rate - self.LINEAR_END) * remaining
        elif self.decay == "staircase":
            value = ops.full_like(step, rate)
            for number, fraction in enumerate(self.staircase, 1):
                value = ops.where(step > round(fraction * total), rate / 10**number, value)
        else:
            value = ops.full_like(step, rate)
        return value * ops.minimum(1.0, step / warmup) if warmup else value

    def get_config(self):
        names = ("learning_rate", "decay", "warmup_steps", "total_steps", "staircase")
        return {name: getattr(self, name) for name in names}
