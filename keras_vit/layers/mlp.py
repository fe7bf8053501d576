"""The MLP of a block. B batch, N tokens, D width, M mlp_dim."""

from functools import partial

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.config import python_integers
from keras_vit.layers.xla.mlp import QUICK, apply_dense, exact_gelu, gelu_for_training
from keras_vit.layers.xla.recompute import Dropout, recompute_dropout

GELU_FORMS = ("tanh", "erf", "quick")


@keras.saving.register_keras_serializable(package="keras_vit")
class Mlp(Composite):
    """Dense, GELU, dropout, Dense, dropout: the MLP of the paper's equation 3.

    With `swiglu`, GELU is replaced by the product of two halves of the first Dense layer's output, one of them after
    SiLU: SwiGLU ("GLU Variants Improve Transformer", arXiv 2002.05202, equation 6) with biases, as in DINOv2's g/14.

    Initial kernels are Xavier uniform and biases normal with standard deviation 1e-6, as in the paper's code.

    Input: (..., D). Output: (..., D).

    Args:
        mlp_dim: M, the hidden width.
        dropout: Rate of dropout after each Dense layer.
        gelu: "tanh", the approximation in the paper's code, for its weights; or "erf", the exact form, for weights from
            PyTorch, which differs by at most 4.8e-4; or "quick", x sigmoid(1.702 x), for OpenAI's CLIP.
        swiglu: Whether the MLP is gated; `gelu` is then not used.
        seed: Seed of the dropout.

    Raises:
        ValueError: Unknown `gelu`.
    """

    def __init__(self, mlp_dim, dropout=0.0, gelu="tanh", seed=None, swiglu=False, **kwargs):
        super().__init__(**kwargs)
        if gelu not in GELU_FORMS:
            raise ValueError(f"`gelu` must be 'tanh', 'erf' or 'quick'. Received: {gelu!r}")
        self.mlp_dim = python_integers(mlp_dim)
        self.dropout_rate = dropout
        self.gelu = gelu
        self.seed = seed
        self.swiglu = bool(swiglu)
        self.hidden = self._dense((1 + self.swiglu) * self.mlp_dim, "hidden")
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
        hidden = apply_dense(self.hidden, tokens)  # (B, N, M), or (B, N, 2 M) of a gated MLP
        second_half = partial(self._activate_and_project, training=training)
        output = recompute_dropout(second_half, hidden, [self.dropout_hidden], training)  # (B, N, D)
        return self.dropout_out(output, training=training)  # (B, N, D)

    def _activate_and_project(self, hidden, training=None):
        """GELU, dropout, Dense: (B, N, M) -> (B, N, D)."""
        hidden = self.dropout_hidden(self._activate(hidden, training), training=training)  # (B, N, M)
        return apply_dense(self.out, hidden)  # (B, N, D)

    def _activate(self, hidden, training=None):
        """GELU: (B, N, M) -> (B, N, M); or SwiGLU: (B, N, 2 M) -> (B, N, M)."""
        if self.swiglu:
            gate, values = ops.split(hidden, 2, axis=-1)
            return ops.silu(gate) * values
        if training:
            return gelu_for_training(hidden, self.gelu)
        if self.gelu == "quick":
            return hidden * ops.sigmoid(QUICK * hidden)
        if self.gelu == "erf":  # not Keras's, whose Erfc no converter but TFLite's knows
            return exact_gelu(hidden)
        return ops.gelu(hidden, approximate=True)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        names = ("mlp_dim", "gelu", "seed", "swiglu")
        config = {name: getattr(self, name) for name in names} | {"dropout": self.dropout_rate}
        return {**super().get_config(), **config}
