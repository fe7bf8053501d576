"""One block of the Transformer encoder. B batch, N tokens, D width, K heads."""

from dataclasses import asdict
from functools import partial

import keras

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.config import BlockConfig, fields_as_keywords
from keras_vit.layers.heads import spec_with_attention
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import Mlp
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.remat import recompute, remat_of_layers, seed_generators
from keras_vit.layers.stochastic_depth import StochasticDepth
from keras_vit.layers.xla.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(keras.layers.Layer):
    """One block, equations 2 and 3 of the paper: z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'.

    Input: (B, N, D). Output: (B, N, D), and the attention weights (B, K, N, N) if asked for.

    Args:
        config: A `BlockConfig`, or its fields as keyword arguments: `num_heads`, `mlp_dim`, `dropout`, ...
        stochastic_depth: Probability that a residual branch is dropped, each of the two on its own.
        remat: What is computed anew in the backward pass instead of kept in memory: None, "mlp" or "attention" (that
            branch with its normalization), or "block". See `recompute`.
        seed: Seed of all dropout in the block.

    Raises:
        ValueError: The heads do not divide the width (when built), an unknown `gelu`, a rate out of range.
    """

    @fields_as_keywords(BlockConfig)
    def __init__(self, *, config: BlockConfig, stochastic_depth=0.0, remat=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.stochastic_depth = stochastic_depth
        self.seed = seed
        (self.remat,) = remat_of_layers([remat], 1)
        dtype = self.dtype_policy
        seeds = [None] * 5 if seed is None else [seed + i for i in range(5)]
        self.norm_attention = LayerNorm(config.epsilon, dtype=dtype, name="norm_attention")
        self.attention = SelfAttention(
            config.num_heads,
            config.attention_dropout,
            config.qk_norm,
            config.relative_positions,
            config.epsilon,
            seed=seeds[0],
            dtype=dtype,
            name="attention",
        )
        self.scale_attention = self._scale("scale_attention")
        self.dropout = Dropout(config.dropout, seed=seeds[1], dtype=dtype, name="dropout")
        self.drop_attention = StochasticDepth(stochastic_depth, seed=seeds[2], dtype=dtype, name="drop_attention")
        self.norm_mlp = LayerNorm(config.epsilon, dtype=dtype, name="norm_mlp")
        self.scale_mlp = self._scale("scale_mlp")
        self.drop_mlp = StochasticDepth(stochastic_depth, seed=seeds[3], dtype=dtype, name="drop_mlp")
        self.mlp = Mlp(config.mlp_dim, config.dropout, config.gelu, seed=seeds[4], dtype=dtype, name="mlp")

    def _scale(self, name):
        initial = self.config.layer_scale
        return None if initial is None else LayerScale(initial, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        layers = (self.norm_attention, self.attention, self.scale_attention, self.norm_mlp, self.mlp, self.scale_mlp)
        for layer in layers:
            if layer is not None:
                layer.build(input_shape)

    def call(self, tokens, training=None, return_attention=False):
        remat = self.remat if training and not return_attention else None
        if remat == "block":
            random = (*self._random_in_attention(), self.drop_attention, *self._random_in_mlp(), self.drop_mlp)
            return recompute(lambda x: self._branches(x, None, True)[0], tokens, seed_generators(random))
        tokens, weights = self._branches(tokens, remat, training, return_attention)
        return (tokens, weights) if return_attention else tokens

    def _branches(self, tokens, remat, training, return_attention=False):
        attend, mlp_branch = partial(self._attend, training=training), partial(self._mlp_branch, training=training)
        weights = None
        if return_attention:
            branch, weights = attend(tokens, return_attention=True)
        elif remat == "attention":
            branch = recompute(attend, tokens, seed_generators(self._random_in_attention()))
        else:
            branch = attend(tokens)
        tokens = tokens + self.drop_attention(branch, training=training)  # (B, N, D)
        if remat == "mlp":
            branch = recompute(mlp_branch, tokens, seed_generators(self._random_in_mlp()))
        else:
            branch = mlp_branch(tokens)
        return tokens + self.drop_mlp(branch, training=training), weights  # (B, N, D)

    def _attend(self, tokens, training, return_attention=False):
        # Said to the norms, too: where a block is recomputed, Keras no longer knows that it is for training.
        normed = self.norm_attention(tokens, training=training)  # (B, N, D)
        found = self.attention(normed, training=training, return_attention=return_attention)
        branch, weights = found if return_attention else (found, None)
        branch = self.dropout(branch, training=training)
        if self.scale_attention is not None:
            branch = self.scale_attention(branch)
        return (branch, weights) if return_attention else branch

    def _mlp_branch(self, tokens, training):
        branch = self.mlp(self.norm_mlp(tokens, training=training), training=training)
        return branch if self.scale_mlp is None else self.scale_mlp(branch)

    def _random_in_attention(self):
        return self.attention.dropout, self.dropout

    def _random_in_mlp(self):
        return self.mlp.dropout_hidden, self.mlp.dropout_out

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, tokens, training=None, return_attention=False):
        return spec_with_attention(self, tokens, (self.attention.num_heads,), return_attention)

    def get_config(self):
        own = {"stochastic_depth": self.stochastic_depth, "remat": self.remat, "seed": self.seed}
        return {**super().get_config(), **asdict(self.config), **own}
