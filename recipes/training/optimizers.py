"""Keras optimizers whose step is the same on any number of replicas."""

import math
import re
from typing import Any

import keras
from keras import ops

from keras_vit import VisionTransformer
from keras_vit.layers.xla.island import can_compile_island
from keras_vit.models.layer_decay import layer_wise_factors
from keras_vit.recipes.keras_internals import ChosenMatrices, Moments
from keras_vit.recipes.processes.replicas import ReplicaInvariant
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.replacements import NOTHING_REPLACED


class AdamStep(ReplicaInvariant, Moments):
    """Adam with epsilon added to the square root of the corrected mean square, as in flax.optim, optax and PyTorch.

    Keras adds it before the correction, where after t steps it acts as epsilon / sqrt(1 - beta_2 ** t): 32 times as
    much in the first step. See `ReplicaInvariant`.
    """

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, self.adam_update(gradient, variable, ops.cast(learning_rate, variable.dtype)))

    def adam_update(self, gradient, variable, rate=1.0):
        """The update; changes the moments."""
        (mean, square), dtype = self.moments_of(self.index_of(variable)), variable.dtype
        gradient, step = ops.cast(gradient, dtype), ops.cast(self.iterations + 1, dtype)
        of_mean, of_square = (1.0 - ops.power(ops.cast(beta, dtype), step) for beta in (self.beta_1, self.beta_2))
        self.assign_add(mean, (1.0 - self.beta_1) * (gradient - mean))
        self.assign_add(square, (1.0 - self.beta_2) * (ops.square(gradient) - square))
        # Corrections of scalars, and moments that are read again: other forms move 0.8 % more on a TPU v5e.
        root = ops.sqrt(of_square)
        return mean * (rate * root / of_mean) / (ops.sqrt(square) + self.epsilon * root)


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(AdamStep, keras.optimizers.Adam):
    """Adam, see `AdamStep`."""


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(AdamStep, keras.optimizers.AdamW):
    """AdamW, see `AdamStep`."""


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


@keras.saving.register_keras_serializable(package="keras_vit")
class Muon(ReplicaInvariant, ChosenMatrices):
    """Muon for the kernels of dense layers and convolutions, AdamW for all else; see `ReplicaInvariant`.

    The momentum of a kernel is orthogonalized, which moves all of its directions equally far (Keller Jordan et al.,
    2024, with their code: KellerJordan/Muon). The kernel of a convolution, (h, w, C, F), is a matrix of h w C rows, as
    there. A step is multiplied by 0.2 sqrt(max(rows, columns)), so that AdamW's learning rates and weight decay suit
    (arXiv 2502.16982, the default of `keras.optimizers.Muon`). The patch embedding and heads are trained by AdamW.
    """

    def is_orthogonalized(self, variable):
        kernel = variable.path.endswith("/kernel") and len(variable.shape) in (2, 4)
        return kernel and not re.search(r"(^|/)(head|patch_embedding)", variable.path)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, ops.cast(learning_rate, variable.dtype))

    def zeropower_via_newtonschulz5(self, x, steps):
        matrix = ops.reshape(x, (-1, x.shape[-1]))  # (rows, columns)
        iterate = super().zeropower_via_newtonschulz5
        if can_compile_island() and max(matrix.shape) >= 2 * min(matrix.shape):
            iterate = self.orthogonalize_by_gram_matrix
        return ops.reshape(iterate(matrix, steps), x.shape)

    def orthogonalize_by_gram_matrix(self, x, steps):
        """The same iteration, (rows, columns) -> the same, with 0.5 to 0.9 of the FLOPs; for float32 on CPUs.

        A step multiplies X by a polynomial P of its Gram matrix A = X X', which then is P A P. The product of three P,
        which are as small as A, is applied at once; A is computed again after them, since its rounding error grows.
        """
        if x.shape[0] > x.shape[1]:
            return ops.transpose(self.orthogonalize_by_gram_matrix(ops.transpose(x), steps))
        x = x / (ops.norm(x) + 1e-7)
        identity = ops.eye(x.shape[0], dtype=x.dtype)
        for start in range(0, steps, 3):
            gram, factor = ops.matmul(x, ops.transpose(x)), None
            for _ in range(start, min(start + 3, steps)):
                polynomial = self.muon_a * identity + self.muon_b * gram + self.muon_c * ops.matmul(gram, gram)
                factor = polynomial if factor is None else ops.matmul(polynomial, factor)
                gram = ops.matmul(ops.matmul(polynomial, gram), polynomial)
            x = ops.matmul(factor, x)
        return x

    def lr_adjust(self, x):
        return x * self.rms_rate * max(math.prod(x.shape[:-1]), x.shape[-1]) ** 0.5


@keras.saving.register_keras_serializable(package="keras_vit")
class Lion(ReplicaInvariant, keras.optimizers.Lion):
    """`keras.optimizers.Lion` (arXiv 2302.06675), see `ReplicaInvariant`."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Lamb(AdamStep, keras.optimizers.Lamb):
    """LAMB (arXiv 1904.00962) as apex and timm compute it; see `AdamStep`.

    r = Adam's update, plus weight_decay * p; then p <- p - rate * norm(p) / norm(r) * r. The ratio of the norms is 1 if
    one of them is 0, and for variables without weight decay, which have Adam's step. `keras.optimizers.Lamb` decays
    separately and has the ratio for all variables.
    """

    def decay_step(self, variable, rate):
        """Nothing: the decay is a part of the step."""

    def update_step(self, gradient, variable, learning_rate):
        update = self.adam_update(gradient, variable)
        if self.decayed[self.index_of(variable)]:
            update += self.weight_decay * variable
            lengths = [ops.sqrt(ops.sum(ops.square(array))) for array in (variable, update)]
            both = (lengths[0] > 0) & (lengths[1] > 0)
            update *= ops.where(both, lengths[0] / ops.where(both, lengths[1], 1.0), 1.0)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * update)


def build_optimizer(
    recipe: Optimizer, total_steps: int, model=None, loss_scaling: bool = False, replacements=NOTHING_REPLACED
) -> ReplicaInvariant:
    """Builds the Keras optimizer of a recipe. Adam's epsilon is 1e-8, as in the paper's code (Keras: 1e-7).

    Args:
        total_steps: Steps of the run, for the schedule.
        model: The `VisionTransformer` to train, after freezing layers; needed for `layer_decay` only.
        loss_scaling: See `ReplicaInvariant`.
        replacements: May have an optimizer to use instead of `recipe.name`.

    Raises:
        RecipeError: Layer decay for a model without layer groups.
        ValueError: An optimizer of `replacements` cannot be used.
    """
    rate = WarmupDecay(recipe.learning_rate, recipe.decay, recipe.warmup_steps, total_steps, recipe.staircase)
    common: dict[str, Any] = {
        "learning_rate": rate,
        "global_clipnorm": recipe.global_clipnorm,
        "use_ema": recipe.ema_momentum is not None,
    }
    if recipe.ema_momentum is not None:
        common["ema_momentum"] = recipe.ema_momentum
    rate_factors = None if recipe.layer_decay is None else _rate_factors(recipe.layer_decay, model)
    if replacements.optimizer:
        common["weight_decay"] = recipe.weight_decay
        return replacements.create_optimizer(common, rate_factors, loss_scaling)
    common |= {"rate_factors": rate_factors, "loss_scaling": loss_scaling}
    if recipe.name == "sgd":
        return SGD(momentum=0.9, weight_decay=recipe.weight_decay or None, **common)
    if recipe.name == "adam":
        return Adam(beta_2=recipe.beta_2, epsilon=1e-8, **common)
    if recipe.name == "adamw":
        return AdamW(weight_decay=recipe.weight_decay, beta_2=recipe.beta_2, epsilon=1e-8, **common)
    if recipe.name == "muon":
        return Muon(weight_decay=recipe.weight_decay or None, adam_beta_2=recipe.beta_2, epsilon=1e-8, **common)
    if recipe.name == "lion":
        return Lion(beta_1=0.9, beta_2=0.99, weight_decay=recipe.weight_decay or None, **common)
    return Lamb(weight_decay=recipe.weight_decay or None, beta_2=recipe.beta_2, epsilon=1e-8, **common)


def _rate_factors(layer_decay, model):
    if not isinstance(model, VisionTransformer):
        raise RecipeError(
            f"Layer-wise decay requires the layers of a VisionTransformer, not of a {type(model).__name__}.",
            {"optimizer.layer_decay": layer_decay},
            {"optimizer.layer_decay": None},
        )
    factors = layer_wise_factors(model, layer_decay)
    return [factors[variable.path] for variable in model.trainable_variables]


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup from 0, then decay, as google-research/vision_transformer (utils.py).

    Steps start at 0. With p the completed fraction of the steps after warmup: "cosine" is rate * (1 + cos(pi p)) / 2;
    "linear" is end + (rate - end) * (1 - p) with end 1e-5, or the rate if that is less; both times min(1, step /
    warmup_steps). "staircase" divides the rate by 10 after each fraction of `total_steps`, as BiT-HyperRule
    (google-research/big_transfer, bit_hyperrule.py, `s < step`: from step 3,001, 6,001 and 9,001 of 10,000 on).

    Args:
        learning_rate: Peak.
        decay: "cosine", "linear", "constant" or "staircase".
        warmup_steps, total_steps: Lengths in steps; the warmup is the shorter.
        staircase: Fractions of `total_steps` in (0, 1), increasing; for "staircase" only.
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
            end = min(rate, self.LINEAR_END)
            value = end + (rate - end) * remaining
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
