"""The Transformer encoder: a stack of pre-norm blocks. B batch, N tokens, D width, K heads."""

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.mlp import Mlp
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.stochastic_depth import StochasticDepth

# Seeds that each block draws from the encoder's: the blocks' masks are independent, and a seed fixes them all.
SEEDS_PER_BLOCK = 8


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(keras.layers.Layer):
    """One block, equations 2 and 3 of the paper: z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'.

    Input: (B, N, D). Output: (B, N, D), and the attention weights (B, K, N, N) if asked for.

    Args:
        num_heads: K.
        mlp_dim: Hidden width of the MLP.
        dropout: Rate after the attention's output projection and after both Dense layers of the MLP.
        attention_dropout: Rate on the attention weights; 0 in every published configuration.
        stochastic_depth: Probability that a residual branch is dropped, each of the two on its own.
        gelu: "tanh" or "erf", see `Mlp`.
        epsilon: Of the layer normalisations; 1e-6 in the paper's code.
        seed: Seed of all dropout in the block.

    Raises:
        ValueError: The heads do not divide the width (when built), an unknown `gelu`, a rate out of range.
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        gelu="tanh",
        epsilon=1e-6,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = {
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
            "gelu": gelu,
            "epsilon": epsilon,
            "seed": seed,
        }
        dtype = self.dtype_policy
        seeds = [None] * 5 if seed is None else [seed + i for i in range(5)]
        self.norm_attention = LayerNorm(epsilon, dtype=dtype, name="norm_attention")
        self.attention = SelfAttention(num_heads, attention_dropout, seed=seeds[0], dtype=dtype, name="attention")
        self.dropout = keras.layers.Dropout(dropout, seed=seeds[1], dtype=dtype, name="dropout")
        self.drop_attention = StochasticDepth(stochastic_depth, seed=seeds[2], dtype=dtype, name="drop_attention")
        self.norm_mlp = LayerNorm(epsilon, dtype=dtype, name="norm_mlp")
        self.drop_mlp = StochasticDepth(stochastic_depth, seed=seeds[3], dtype=dtype, name="drop_mlp")
        self.mlp = Mlp(mlp_dim, dropout, gelu, seed=seeds[4], dtype=dtype, name="mlp")

    def build(self, input_shape):
        for layer in (self.norm_attention, self.attention, self.norm_mlp, self.mlp):
            layer.build(input_shape)

    def call(self, tokens, training=None, return_attention=False):
        branch, weights = self.attention(self.norm_attention(tokens), training=training, return_attention=True)
        branch = self.dropout(branch, training=training)
        tokens = tokens + self.drop_attention(branch, training=training)  # (B, N, D)
        branch = self.mlp(self.norm_mlp(tokens), training=training)
        tokens = tokens + self.drop_mlp(branch, training=training)  # (B, N, D)
        return (tokens, weights) if return_attention else tokens

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), **self.config}


@keras.saving.register_keras_serializable(package="keras_vit")
class Encoder(keras.layers.Layer):
    """`depth` blocks and the final layer normalisation.

    Input: (B, N, D). Output: (B, N, D), and all attention weights (B, depth, K, N, N) if asked for.

    Args:
        depth: Number of blocks.
        num_heads, mlp_dim, dropout, attention_dropout, gelu, epsilon: See `EncoderBlock`.
        stochastic_depth: Rate of the last block; it grows linearly from 0 at the first (as scenic and DeiT).
        seed: Seed of all dropout in the encoder.
    """

    def __init__(
        self,
        depth,
        num_heads,
        mlp_dim,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        gelu="tanh",
        epsilon=1e-6,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        block = {
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "gelu": gelu,
            "epsilon": epsilon,
        }
        self.config = {"depth": depth, **block, "stochastic_depth": stochastic_depth, "seed": seed}
        self.blocks = [
            EncoderBlock(
                **block,
                stochastic_depth=stochastic_depth * i / max(depth - 1, 1),
                seed=None if seed is None else seed + SEEDS_PER_BLOCK * i,
                dtype=self.dtype_policy,
                name=f"block_{i}",
            )
            for i in range(depth)
        ]
        self.norm = LayerNorm(epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape):
        for layer in (*self.blocks, self.norm):
            layer.build(input_shape)

    def call(self, tokens, training=None, return_attention=False):
        attention = []
        for block in self.blocks:
            tokens, weights = block(tokens, training=training, return_attention=True)
            attention.append(weights)
        tokens = self.norm(tokens)  # (B, N, D)
        return (tokens, ops.stack(attention, axis=1)) if return_attention else tokens

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), **self.config}
