"""A learnable factor per channel of a residual branch. D width."""

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
