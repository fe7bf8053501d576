"""The two-layer network of a block. B batch, N tokens, D width, M mlp_dim."""

from functools import partial

import keras
from keras import ops

from keras_vit.integers import python_integers
from keras_vit.layers.remat import compiled_by_xla, recompute, seed_generators
from keras_vit.layers.xla.dense import dense
from keras_vit.layers.xla.dropout import Dropout
from keras_vit.layers.xla.gelu import trained_gelu

GELU_FORMS = ("tanh", "erf")


@keras.saving.register_keras_serializable(package="keras_vit")
class Mlp(keras.layers.Layer):
    """Dense, GELU, dropout, Dense, dropout: the MLP of the paper's equation 3.

    Kernels are Xavier uniform and biases normal with standard deviation 1e-6, as in the paper's code.

    Input: (..., D). Output: (..., D).

    Args:
        mlp_dim: M, the hidden width.
        dropout: Rate of dropout after each Dense layer.
        gelu: "tanh", the approximation that the paper's code and so its weights use, or "erf", the exact form, for
            weights from PyTorch. They differ by at most 4.8e-4.
        seed: Seed of the dropout.

    Raises:
        ValueError: `gelu` is neither of the two.
    """

    def __init__(self, mlp_dim, dropout=0.0, gelu="tanh", seed=None, **kwargs):
        super().__init__(**kwargs)
        if gelu not in GELU_FORMS:
            raise ValueError(f"`gelu` must be 'tanh' or 'erf'. Received: {gelu!r}")
        self.mlp_dim = python_integers(mlp_dim)
        self.dropout_rate = dropout
        self.gelu = gelu
        self.seed = seed
        self.hidden = self._dense(self.mlp_dim, "hidden")
        self.dropout_hidden = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout_hidden")
        self.dropout_out = Dropout(
            dropout, seed=None if seed is None else seed + 1, dtype=self.dtype_policy, name="dropout_out"
        )

    def _dense(self, units, name):
        bias = keras.initializers.RandomNormal(stddev=1e-6)
        return keras.layers.Dense(units, bias_initializer=bias, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        self.hidden.build(input_shape)
        self.out = self._dense(input_shape[-1], "out")
        self.out.build((*input_shape[:-1], self.mlp_dim))

    def call(self, tokens, training=None):
        hidden = dense(self.hidden, tokens)  # (B, N, M)
        finish = partial(self._finish, training=training)
        if training and self.dropout_rate and compiled_by_xla():
            # Or else the random bits of all hidden tokens would be kept.
            output = recompute(finish, hidden, seed_generators([self.dropout_hidden]))
        else:
            output = finish(hidden)
        return self.dropout_out(output, training=training)  # (B, N, D)

    def _finish(self, hidden, training):
        hidden = self.dropout_hidden(self._activation(hidden, training), training=training)
        return dense(self.out, hidden)

    def _activation(self, hidden, training):
        if training and self.gelu == "tanh":
            return trained_gelu(hidden)
        return ops.gelu(hidden, approximate=self.gelu == "tanh")

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"mlp_dim": self.mlp_dim, "dropout": self.dropout_rate, "gelu": self.gelu, "seed": self.seed}
        return {**super().get_config(), **config}
