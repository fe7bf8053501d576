"""Multi-head self-attention. B batch, N tokens, D width, K heads, d head width (D / K)."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.heads import check_heads, merge_heads, spec_with_attention, split_heads
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.positions import by_distance
from keras_vit.layers.rotary import RotaryPositions
from keras_vit.layers.tokens import take_tokens
from keras_vit.layers.xla.attention import attend_without_weights, can_fuse, can_omit_weights, fused_attention
from keras_vit.layers.xla.mlp import apply_units
from keras_vit.layers.xla.recompute import Dropout


def attention_weights(query, key, position_logits=None):
    """softmax(q k^T / sqrt(d)) of the paper's equation 6: (B, K, Nq, d), (B, K, Nk, d) -> (B, K, Nq, Nk).

    The softmax is computed in at least float32 and cast back to the inputs' dtype. `position_logits` maps the scaled
    queries to logits (B, K, Nq, Nk) that are added before the softmax.
    """
    query = query * (query.shape[-1] ** -0.5)
    logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, K, Nq, Nk)
    if position_logits is not None:
        logits = logits + position_logits(query)  # (B, K, Nq, Nk)
    precise = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    return ops.cast(ops.softmax(precise, axis=-1), logits.dtype)  # (B, K, Nq, Nk)


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(Composite):
    """Multi-head self-attention, the MSA of the paper's equation 2 and appendix A, with biases.

    One Dense layer computes queries, keys and values, concatenated in this order. Initial kernels are Xavier uniform
    and biases zeros, as in the paper's code.

    Input: (B, N, D). Output: (B, N, D), and the attention weights (B, K, N, N) with `return_attention=True`: row i
        holds the weights of all tokens for token i, and sums to 1. With `read`, see `take_tokens`, only these tokens
        attend to all: the output is (B, M, D), the weights (B, K, M, N).

    Args:
        num_heads: Number of heads, K; must divide D.
        dropout: Rate of dropout on the attention weights.
        qk_norm: Whether queries and keys are normalized, each head separately ("Scaling Vision Transformers to 22
            Billion Parameters", arXiv 2302.05442, section 2.1).
        relative_positions: Whether logits that depend on the distance of tokens are added, see `RelativePositions`.
        rotary_positions: Arguments of `RotaryPositions`, which rotate queries and keys; None for no rotation.
        epsilon: Epsilon of the normalizations of queries and keys.
        seed: Seed of the dropout.

    Raises:
        ValueError: The heads do not divide the width (when built); `read` beside relative positions.
    """

    def __init__(
        self,
        num_heads,
        dropout=0.0,
        qk_norm=False,
        relative_positions=False,
        rotary_positions=None,
        epsilon=1e-6,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.qk_norm = qk_norm
        self.epsilon = epsilon
        self.seed = seed
        dtype = self.dtype_policy
        self.query_norm = LayerNorm(epsilon, dtype=dtype, name="query_norm") if qk_norm else None
        self.key_norm = LayerNorm(epsilon, dtype=dtype, name="key_norm") if qk_norm else None
        self.relative = RelativePositions(dtype=dtype, name="relative") if relative_positions else None
        self.rotary_positions = rotary_positions
        self.rotary = RotaryPositions(**rotary_positions, dtype=dtype, name="rotary") if rotary_positions else None
        self.dropout = Dropout(dropout, seed=seed, dtype=dtype, name="dropout")

    def build(self, input_shape):
        width = input_shape[-1]
        check_heads(width, self.num_heads)
        # The limit is Xavier's for one (D, D) kernel, sqrt(6 / (D + D)); glorot_uniform would use (D, 3D).
        xavier = keras.initializers.VarianceScaling(1.0, "fan_in", "uniform")
        self.qkv = keras.layers.Dense(3 * width, kernel_initializer=xavier, dtype=self.dtype_policy, name="qkv")
        self.qkv.build(input_shape)
        self.out = keras.layers.Dense(width, dtype=self.dtype_policy, name="out")
        self.out.build(input_shape)
        heads_shape = (None, self.num_heads, input_shape[1], width // self.num_heads)
        for layer in (self.query_norm, self.key_norm, self.relative, self.rotary):
            if layer is not None:
                layer.build(heads_shape)

    def call(self, tokens, training=None, return_attention=False, read=None):
        if read is not None and self.relative is not None:
            raise ValueError(f"Relative positions require all tokens. Expected read=None. Received: read={read!r}")
        if not return_attention and can_omit_weights(self, training):
            return attend_without_weights(self, tokens, read)  # the same output; weights are recomputed, not stored
        query, key, value = (split_heads(x, self.num_heads) for x in self.project(tokens, read))
        query, key = self.normalize_and_rotate(query, key, read)  # (B, K, N, d)
        needs_weights = return_attention or self.relative is not None or (training and self.dropout.rate)
        if read is None and not needs_weights and can_fuse(query):
            return self.out(merge_heads(fused_attention(query, key, value, training)))  # (B, N, D)
        weights = attention_weights(query, key, self.relative)  # (B, K, N, N)
        mixed = ops.matmul(self.dropout(weights, training=training), value)  # (B, K, N, d)
        output = self.out(merge_heads(mixed))  # (B, N, D)
        return (output, weights) if return_attention else output

    def project(self, tokens, read=None):
        """Queries, keys and values, (B, N, D) each; with `read`, the first are (B, M, D)."""
        if read is None:
            return ops.split(self.qkv(tokens), 3, axis=-1)
        width = tokens.shape[-1]
        query = apply_units(self.qkv, take_tokens(tokens, read), slice(width))  # (B, M, D)
        return query, *ops.split(apply_units(self.qkv, tokens, slice(width, None)), 2, axis=-1)

    def normalize_and_rotate(self, query, key, read=None):
        """Queries and keys, (B, K, N, d): normalized if `qk_norm`, then rotated if positions are rotary."""
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return (query, key) if self.rotary is None else (self.rotary(query, read=read), self.rotary(key))

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, tokens, training=None, return_attention=False, read=None):
        return spec_with_attention(self, tokens, (self.num_heads,), return_attention, read)

    def get_config(self):
        config = {
            "num_heads": self.num_heads,
            "dropout": self.dropout.rate,
            "qk_norm": self.qk_norm,
            "relative_positions": self.relative is not None,
            "rotary_positions": self.rotary_positions,
            "epsilon": self.epsilon,
            "seed": self.seed,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositions(keras.layers.Layer):
    """1-D relative attention of the paper's appendix D.4: logits q_n . e_(n - m), to be added to q_n . k_m.

    The embeddings e of all distances between -(N - 1) and N - 1 act as keys; the heads share them ("Self-Attention with
    Relative Position Representations", arXiv 1803.02155). A class token has index 0 in the
    sequence. Patches are numbered row by row, so a table belongs to one image size.

    Input: queries (B, K, N, d), scaled by 1 / sqrt(d). Output: logits (B, K, N, N).
    """

    def build(self, input_shape):
        tokens, head_width = input_shape[2:]
        self.table = self.add_weight(
            shape=(2 * tokens - 1, head_width),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="table",
        )

    def call(self, query):
        embeddings = by_distance(ops.cast(self.table, query.dtype))  # (N, N, d), e_(n - m) at (m, n)
        return ops.einsum("bknd,mnd->bknm", query, embeddings)  # (B, K, N, N)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-2])

    def get_config(self):
        # Keras's automatic config would reject a `dtype` that is a policy.
        return super().get_config()
