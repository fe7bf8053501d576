"""Optimizers that compute the same on any number of replicas, and the paper's learning-rate schedules."""

import math

import keras
from keras import ops

from keras_vit.models.groups import NOT_DECAYED
from keras_vit.recipes.recipe import Optimizer

MASK = "mask"  # the embedding of masked patches


class ClipAfterReduction:
    """Clips gradients after they are summed over replicas, where Keras 3 clips each replica's own before the sum.

    The paper's code clips the reduced gradient (google-research/vision_transformer, train.py). Both methods are private
    to Keras, so a test compares two replicas with one.
    """

    def _clip_gradients(self, grads):
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        grads, variables = zip(*super()._all_reduce_sum_gradients(grads_and_vars))
        return list(zip(super()._clip_gradients(list(grads)), variables))


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(ClipAfterReduction, keras.optimizers.Adam):
    """`keras.optimizers.Adam` that clips after the reduction over replicas."""


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(ClipAfterReduction, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that clips after the reduction over replicas."""


@keras.saving.register_keras_serializable(package="keras_vit")
class SGD(ClipAfterReduction, keras.optimizers.SGD):
    """`keras.optimizers.SGD` that clips after the reduction over replicas."""


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then decay, as google-research/vision_transformer (utils.py).

    With p the share of the steps after the warm-up that is done: cosine, rate * (1 + cos(pi p)) / 2; linear,
    end + (rate - end) * (1 - p) with end 1e-5; times min(1, step / warmup_steps).

    Args:
        learning_rate: Peak.
        decay: "cosine", "linear" or "constant".
        warmup_steps, total_steps: Updates.
    """

    LINEAR_END = 1e-5

    def __init__(self, learning_rate, decay, warmup_steps, total_steps):
        if warmup_steps >= total_steps:
            raise ValueError(
                f"A warm-up of {warmup_steps} steps leaves nothing of a run of {total_steps}. Shorten warmup_steps."
            )
        self.config = {
            "learning_rate": learning_rate,
            "decay": decay,
            "warmup_steps": warmup_steps,
            "total_steps": total_steps,
        }

    def __call__(self, step):
        rate, decay, warmup, total = self.config.values()
        step = ops.cast(step, "float32")
        progress = ops.clip((step - warmup) / (total - warmup), 0.0, 1.0)
        if decay == "cosine":
            value = rate * 0.5 * (1.0 + ops.cos(math.pi * progress))
        elif decay == "linear":
            value = self.LINEAR_END + (rate - self.LINEAR_END) * (1.0 - progress)
        else:
            value = rate * ops.ones_like(progress)
        return value * ops.minimum(1.0, step / warmup) if warmup else value

    def get_config(self):
        return dict(self.config)


def build_optimizer(recipe: Optimizer, total_steps: int):
    """Makes the Keras optimizer of a recipe. Adam's epsilon is 1e-8, as in the paper's code (Keras: 1e-7)."""
    rate = WarmupDecay(recipe.learning_rate, recipe.decay, recipe.warmup_steps, total_steps)
    if recipe.weight_decay and recipe.name != "adamw":
        raise ValueError(f"weight_decay={recipe.weight_decay} needs name='adamw'. Received: name={recipe.name!r}")
    if recipe.name == "sgd":
        return SGD(rate, momentum=0.9, global_clipnorm=recipe.global_clipnorm)
    if recipe.name == "adam":
        return Adam(rate, epsilon=1e-8, global_clipnorm=recipe.global_clipnorm)
    optimizer = AdamW(rate, recipe.weight_decay, epsilon=1e-8, global_clipnorm=recipe.global_clipnorm)
    optimizer.exclude_from_weight_decay(var_names=[*NOT_DECAYED, MASK])
    return optimizer
