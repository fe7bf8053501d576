"""Keras optimizers whose step is the same on any number of replicas."""

from typing import Any

import keras
from keras import ops

from keras_vit import VisionTransformer
from keras_vit.models.layer_decay import layer_wise_factors
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.training.replicas import ReplicaInvariant
from keras_vit.recipes.training.schedules import WarmupDecay


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(ReplicaInvariant, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, see `ReplicaInvariant`."""


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(ReplicaInvariant, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, see `ReplicaInvariant`."""


@keras.saving.register_keras_serializable(package="keras_vit")
class SGD(ReplicaInvariant, keras.optimizers.SGD):
    """Gradient descent with momentum as flax.optim.Momentum, which trained the paper's models; see `ReplicaInvariant`.

    With m the momentum: buffer <- m buffer + g, then p <- p - rate * buffer, with Nesterov momentum p <- p - rate *
    (g + m buffer). Weight decay does not enter the buffer. `keras.optimizers.SGD` multiplies g by the rate of its own
    step, buffer <- m buffer - rate * g: the same at a constant rate, but after a drop of the rate its next steps still
    have the size of the previous rate.
    """

    def update_step(self, gradient, variable, learning_rate):
        gradient, rate = ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype)
        step = gradient
        if self.momentum:
            buffer = self.momentums[self.index_of(variable)]
            step = self.momentum * buffer + gradient
            self.assign(buffer, step)
            if self.nesterov:
                step = gradient + self.momentum * step
        self.assign_sub(variable, rate * step)


def build_optimizer(recipe: Optimizer, total_steps: int, model=None) -> keras.optimizers.Optimizer:
    """Builds the Keras optimizer of a recipe. Adam's epsilon is 1e-8, as in the paper's code (Keras: 1e-7).

    Args:
        total_steps: Steps of the run, for the schedule.
        model: The `VisionTransformer` to train, after freezing layers; needed for `layer_decay` only.

    Raises:
        ValueError: Weight decay with "adam", layer decay for a model without layer groups, or an invalid schedule, see
            `WarmupDecay`.
    """
    if recipe.weight_decay and recipe.name == "adam":
        raise ValueError(
            f"optimizer.weight_decay={recipe.weight_decay} requires optimizer.name='adamw' or 'sgd'. "
            f"Received: optimizer.name={recipe.name!r}"
        )
    common: dict[str, Any] = {
        "learning_rate": WarmupDecay(
            recipe.learning_rate, recipe.decay, recipe.warmup_steps, total_steps, recipe.staircase
        ),
        "global_clipnorm": recipe.global_clipnorm,
        "rate_factors": None if recipe.layer_decay is None else _rate_factors(recipe.layer_decay, model),
        "use_ema": recipe.ema_momentum is not None,
    }
    if recipe.ema_momentum is not None:
        common["ema_momentum"] = recipe.ema_momentum
    if recipe.name == "sgd":
        return SGD(momentum=0.9, weight_decay=recipe.weight_decay or None, **common)
    if recipe.name == "adam":
        return Adam(beta_2=recipe.beta_2, epsilon=1e-8, **common)
    if recipe.name == "adamw":
        return AdamW(weight_decay=recipe.weight_decay, beta_2=recipe.beta_2, epsilon=1e-8, **common)
    raise ValueError(f"optimizer.name must be 'adam', 'adamw' or 'sgd'. Received: {recipe.name!r}")


def _rate_factors(layer_decay, model):
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"optimizer.layer_decay={layer_decay} requires the layers of a VisionTransformer. Received: "
            f"{type(model).__name__}. Set optimizer.layer_decay=None."
        )
    factors = layer_wise_factors(model, layer_decay)
    return [factors[variable.path] for variable in model.trainable_variables]
