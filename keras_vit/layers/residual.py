"""Layers of residual branches: learnable factors, and branches that are dropped in training. D width."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiplies a residual branch by a learnable vector with small initial values ("Going deeper with Image
    Transformers", arXiv 2103.17239, equation 4).

    Input: (..., D). Output: the same shape.

    Args:
        initial: Initial value of every factor; 0.1 to 1e-6, smaller for deeper models.
    """

    def __init__(self, initial, **kwargs):
        super().__init__(**kwargs)
        self.initial = initial

    def build(self, input_shape):
        initializer = keras.initializers.Constant(self.initial)
        self.gamma = self.add_weight(shape=(input_shape[-1],), initializer=initializer, name="gamma")

    def call(self, branch):
        return branch * ops.cast(self.gamma, branch.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial": self.initial}


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(keras.layers.Layer):
    """Drops a residual branch for some examples of a batch in training and scales the others up by 1 / (1 - rate).

    "Deep Networks with Stochastic Depth" (arXiv 1603.09382); not in the ViT paper, used by AugReg and DeiT.

    Input: (B, ...), the branch before it is added. Output: the same shape; the identity outside training.

    Args:
        rate: Probability that an example's branch is dropped, in [0, 1).
        seed: Seed of the random draws.

    Raises:
        ValueError: The rate is outside [0, 1).
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"`rate` must be at least 0 and below 1. Received: {rate}")
        self.rate = rate
        self.seed = seed
        # Like keras.layers.Dropout: no random state for a layer that never draws.
        self.seed_generator = keras.random.SeedGenerator(seed) if rate else None
        self.built = True  # has no weights; `model.quantize` rejects layers that are not built

    def call(self, branch, training=None):
        if not training or not self.rate:
            return branch
        shape = (ops.shape(branch)[0], *(1 for _ in branch.shape[1:]))
        draw = keras.random.uniform(shape, seed=self.seed_generator)  # (B, 1, ...)
        keep = ops.cast(draw >= self.rate, branch.dtype)
        return branch * keep / (1.0 - self.rate)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
