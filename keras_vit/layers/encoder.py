"""The Transformer encoder: a stack of pre-norm blocks. B batch, N tokens, D width, K heads."""

from dataclasses import asdict
from functools import partial

import keras
from keras import ops

from keras_vit.layers.axial import AxialBlock
from keras_vit.layers.block import EncoderBlock
from keras_vit.layers.composite import Composite
from keras_vit.layers.config import BlockConfig, fields_as_keywords, remat_of_blocks, stochastic_depth_of_blocks
from keras_vit.layers.heads import spec_with_attention
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.tokens import take_tokens

# Distance between the seeds of neighboring blocks: masks are independent, and the encoder's seed determines them all.
SEEDS_PER_BLOCK = 16


@keras.saving.register_keras_serializable(package="keras_vit")
class Encoder(Composite):
    """`depth` blocks and the final layer normalization.

    Input: (B, N, D). Output: (B, N, D), and all attention weights (B, depth, K, N, N) with `return_attention=True`.
        With `read`, the number of the first tokens or the indices of tokens, (B, M) in [0, N), the output is (B, M, D)
        for these tokens, and the last block computes no others, unless the attention weights are requested or it
        requires all.

    Args:
        depth: Number of blocks.
        config: A `BlockConfig`, or its fields as keyword arguments: `num_heads`, `mlp_dim`, `dropout`, ...
        stochastic_depth: Rate of the last block; it grows linearly from 0 at the first (as in scenic and DeiT). Or a
            list with a rate for each block (DeiT III: the same in all).
        final_norm: Whether there is a normalization at the end; if not, a model normalizes after pooling.
        initial_norm: Whether there is a normalization before the first block (CLIP).
        axial_grid: (h, w) for blocks that attend along rows, then columns, see `AxialBlock`; None for all tokens.
        prefix_tokens: Number of tokens before the patches, for axial blocks.
        remat: See `EncoderBlock`; one value for all blocks, or a list with one per block.
        seed: Seed of all dropout in the encoder.
    """

    @fields_as_keywords(BlockConfig)
    def __init__(
        self,
        depth,
        *,
        config: BlockConfig,
        stochastic_depth=0.0,
        final_norm=True,
        initial_norm=False,
        axial_grid=None,
        prefix_tokens=0,
        remat=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.depth = depth
        self.stochastic_depth = stochastic_depth
        self.axial_grid = axial_grid and tuple(axial_grid)
        self.prefix_tokens = prefix_tokens
        self.remat = remat
        self.seed = seed
        block = partial(AxialBlock, axial_grid, prefix_tokens) if axial_grid else EncoderBlock
        remat_of_block, rates = remat_of_blocks(remat, depth), stochastic_depth_of_blocks(stochastic_depth, depth)
        self.blocks = [
            block(
                config=config,
                stochastic_depth=rates[i],
                remat=remat_of_block[i],
                seed=None if seed is None else seed + SEEDS_PER_BLOCK * i,
                dtype=self.dtype_policy,
                name=f"block_{i}",
            )
            for i in range(depth)
        ]
        self.norm = LayerNorm(config.epsilon, dtype=self.dtype_policy, name="norm") if final_norm else None
        self.initial_norm = (
            LayerNorm(config.epsilon, dtype=self.dtype_policy, name="initial_norm") if initial_norm else None
        )

    def build(self, input_shape):
        for layer in (self.initial_norm, *self.blocks, self.norm):
            if layer is not None:
                layer.build(input_shape)

    def call(self, tokens, training=None, return_attention=False, positions=(), read=None):
        """Encodes tokens; `positions` are layers that add positions before the second block, the third, ..."""
        attention = []
        # Axial blocks and relative positions require all tokens.
        reduce_last = self.blocks and not (return_attention or self.axial_grid or self.config.relative_positions)

        def run(block, tokens):
            if read is not None and reduce_last and block is self.blocks[-1]:
                return block(tokens, training=training, read=read)
            if not return_attention:
                return block(tokens, training=training)
            tokens, weights = block(tokens, training=training, return_attention=True)
            attention.append(weights)
            return tokens

        tokens = self.apply_blocks(tokens, run, positions)
        if read is not None and not reduce_last:
            tokens = take_tokens(tokens, read)  # (B, M, D)
        if self.norm is not None:
            tokens = self.norm(tokens)  # (B, N, D)
        return (tokens, ops.stack(attention, axis=1)) if return_attention else tokens

    def apply_blocks(self, tokens, run, positions=()):
        """Tokens after the last block, not normalized; `run(block, tokens)` applies each block."""
        if self.initial_norm is not None:
            tokens = self.initial_norm(tokens)  # (B, N, D)
        for i, block in enumerate(self.blocks):
            if i and positions:
                tokens = positions[i - 1](tokens)  # (B, N, D)
            tokens = run(block, tokens)
        return tokens

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, tokens, training=None, return_attention=False, positions=(), read=None):
        spec = spec_with_attention(self, tokens, (self.depth, self.config.num_heads), return_attention)
        if read is None:
            return spec
        return (take_tokens(spec[0], read), spec[1]) if return_attention else take_tokens(spec, read)

    def get_config(self):
        names = ("depth", "stochastic_depth", "axial_grid", "prefix_tokens", "remat", "seed")
        own = {name: getattr(self, name) for name in names}
        own |= {"final_norm": self.norm is not None, "initial_norm": self.initial_norm is not None}
        return {**super().get_config(), **asdict(self.config), **own}
