"""The learnable token that is read out as the picture. B batch, N tokens, D width."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Prepends one learnable token to a sequence: x_class of the paper's equation 1, zeros at first as in its code.

    Input: (B, N, D). Output: (B, N + 1, D); the class token is number 0.
    """

    def build(self, input_shape):
        self.token = self.add_weight(shape=(1, 1, input_shape[-1]), initializer="zeros", name="token")

    def call(self, tokens):
        batch = ops.shape(tokens)[0]
        class_tokens = ops.broadcast_to(ops.cast(self.token, tokens.dtype), (batch, 1, tokens.shape[-1]))  # (B, 1, D)
        return ops.concatenate([class_tokens, tokens], axis=1)  # (B, N + 1, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[1] + 1, input_shape[2])
