"""Learnable tokens before the patches. B batch, N tokens, D width."""

import keras
from keras import ops

from keras_vit.integers import is_integer


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Prepends one learnable token to a sequence: x_class of the paper's equation 1, initially zeros as in its code.

    Input: (B, N, D). Output: (B, N + 1, D); the class token has index 0.
    """

    def build(self, input_shape):
        self.token = self.add_weight(shape=(1, 1, input_shape[-1]), initializer="zeros", name="token")

    def call(self, tokens):
        batch = ops.shape(tokens)[0]
        class_tokens = ops.broadcast_to(ops.cast(self.token, tokens.dtype), (batch, 1, tokens.shape[-1]))  # (B, 1, D)
        return ops.concatenate([class_tokens, tokens], axis=1)  # (B, N + 1, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[1] + 1, input_shape[2])

    def get_config(self):
        # Keras's automatic config would reject a `dtype` that is a policy.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedTokens(keras.layers.Layer):
    """Prepends learnable tokens; initial values are normal with standard deviation 0.02.

    One is DeiT's distillation token (arXiv 2012.12877, section 3); several are registers ("Vision Transformers Need
    Registers", arXiv 2309.16588).

    Input: (B, N, D). Output: (B, count + N, D).

    Args:
        count: Number of tokens.

    Raises:
        ValueError: `count` is not a positive integer.
    """

    def __init__(self, count, **kwargs):
        super().__init__(**kwargs)
        if not is_integer(count):
            raise ValueError(f"`count` must be a positive integer of tokens. Received: {count!r}")
        self.count = int(count)

    def build(self, input_shape):
        self.tokens = self.add_weight(
            shape=(1, self.count, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="tokens",
        )

    def call(self, tokens):
        shape = (ops.shape(tokens)[0], self.count, tokens.shape[-1])
        learned = ops.broadcast_to(ops.cast(self.tokens, tokens.dtype), shape)  # (B, count, D)
        return ops.concatenate([learned, tokens], axis=1)  # (B, count + N, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[1] + self.count, input_shape[2])

    def get_config(self):
        return {**super().get_config(), "count": self.count}


def take_tokens(tokens, read):
    """Some of the tokens: (B, N, D) -> (B, M, D).

    Args:
        tokens: (B, N, D).
        read: M, for the first tokens, or integers (B, M), the indices of the tokens; -1 selects zeros.
    """
    if isinstance(read, int):
        return tokens[:, :read]
    if len(shape := tuple(ops.shape(read))) != 2:
        raise ValueError(f"Expected read: a Python integer, or indices of shape (B, M). Received: {shape}")
    # A matrix product, since gather on a TPU, and scatter in its backward pass, are slow.
    chosen = ops.one_hot(read, tokens.shape[1], dtype=tokens.dtype)  # (B, M, N)
    return ops.einsum("bmn,bnd->bmd", chosen, tokens)
