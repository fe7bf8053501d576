"""One block of the Transformer encoder, and what acts on its residual branches. B batch, N tokens, D width, K heads."""

from dataclasses import asdict
from functools import partial

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.composite import Composite
from keras_vit.layers.config import BlockConfig, fields_as_keywords, remat_of_blocks
from keras_vit.layers.heads import spec_with_attention
from keras_vit.layers.mlp import Mlp
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.tokens import take_tokens
from keras_vit.layers.xla.recompute import Dropout, recompute


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(Composite):
    """One block, equations 2 and 3 of the paper: z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'.

    Input: (B, N, D). Output: (B, N, D), and the attention weights (B, K, N, N) with `return_attention=True`. With
        `read`, see `take_tokens`, the output is (B, M, D) for these tokens, and no others are computed. Dropout then
        draws for M tokens.

    Args:
        config: A `BlockConfig`, or its fields as keyword arguments: `num_heads`, `mlp_dim`, `dropout`, ...
        stochastic_depth: Probability that a residual branch is dropped; the two branches are drawn independently.
        remat: What the backward pass recomputes instead of storing: None, "mlp" or "attention" (that branch with its
            normalization), or "block".
        seed: Seed of all dropout in the block.

    Raises:
        ValueError: The heads do not divide the width (when built), an unknown `gelu`, a rate out of range,
            `read` beside relative positions.
    """

    @fields_as_keywords(BlockConfig)
    def __init__(self, *, config: BlockConfig, stochastic_depth=0.0, remat=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.stochastic_depth = stochastic_depth
        self.seed = seed
        (self.remat,) = remat_of_blocks([remat], 1)
        dtype = self.dtype_policy
        seeds = [None] * 5 if seed is None else [seed + i for i in range(5)]
        self.norm_attention = LayerNorm(config.epsilon, dtype=dtype, name="norm_attention")
        self.attention = SelfAttention(
            config.num_heads,
            config.attention_dropout,
            config.qk_norm,
            config.relative_positions,
            config.rotary_positions,
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
        self.mlp = Mlp(
            config.mlp_dim, config.dropout, config.gelu, seed=seeds[4], swiglu=config.swiglu, dtype=dtype, name="mlp"
        )

    def _scale(self, name):
        initial = self.config.layer_scale
        return None if initial is None else LayerScale(initial, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        layers = (self.norm_attention, self.attention, self.scale_attention, self.norm_mlp, self.mlp, self.scale_mlp)
        for layer in layers:
            if layer is not None:
                layer.build(input_shape)

    def call(self, tokens, training=None, return_attention=False, read=None):
        if return_attention:  # an output, so that nothing is recomputed
            branch, weights = self._attention_branch(tokens, training, return_attention=True, read=read)
            return self._add_branches(tokens, branch, training, read), weights
        # Indices are those of all images, which parts of a batch cannot have.
        length = tokens.shape[1] if read is None else read if isinstance(read, int) else None
        return self._run("block", partial(self._apply_branches, read=read), tokens, training, length)

    def _apply_branches(self, tokens, training=None, read=None):
        """(B, N, D) -> (B, N, D)."""
        branch = self._run("attention", partial(self._attention_branch, read=read), tokens, training)
        return self._add_branches(tokens, branch, training, read)

    def _add_branches(self, tokens, branch, training, read):
        """z' = branch + z; z = MLP(LN(z')) + z': (B, N, D) -> (B, N, D)."""
        tokens = tokens if read is None else take_tokens(tokens, read)  # (B, M, D)
        tokens = tokens + self.drop_attention(branch, training=training)  # (B, N, D)
        return tokens + self.drop_mlp(self._run("mlp", self._mlp_branch, tokens, training), training=training)

    def _attention_branch(self, tokens, training=None, return_attention=False, read=None):
        """MSA(LN(z)) with dropout and `LayerScale`: (B, N, D) -> (B, N, D), with attention weights if requested."""
        # The norms get `training` explicitly: within a recomputation Keras does not pass it on.
        normed = self.norm_attention(tokens, training=training)  # (B, N, D)
        output = self.attention(normed, training=training, return_attention=return_attention, read=read)
        branch, weights = output if return_attention else (output, None)
        branch = self.dropout(branch, training=training)
        if self.scale_attention is not None:
            branch = self.scale_attention(branch)
        return (branch, weights) if return_attention else branch

    def _mlp_branch(self, tokens, training=None):
        """MLP(LN(z')) with `LayerScale`: (B, N, D) -> (B, N, D)."""
        branch = self.mlp(self.norm_mlp(tokens, training=training), training=training)
        return branch if self.scale_mlp is None else self.scale_mlp(branch)

    def _run(self, part, function, tokens, training, output_length=None):
        """function(tokens, training); the backward pass recomputes it if `remat` is this part."""
        function = partial(function, training=training)
        if not training or self.remat != part:
            return function(tokens)
        attention, mlp = (self.attention.dropout, self.dropout), (self.mlp.dropout_hidden, self.mlp.dropout_out)
        block = (*attention, self.drop_attention, *mlp, self.drop_mlp)
        return recompute(function, tokens, {"attention": attention, "mlp": mlp, "block": block}[part], output_length)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, tokens, training=None, return_attention=False, read=None):
        return spec_with_attention(self, tokens, (self.attention.num_heads,), return_attention, read)

    def get_config(self):
        own = {"stochastic_depth": self.stochastic_depth, "remat": self.remat, "seed": self.seed}
        return {**super().get_config(), **asdict(self.config), **own}


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
