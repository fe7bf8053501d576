"""Multi-head self-attention. B batch, N tokens, D width, K heads, d head width (D / K)."""

import keras
from keras import ops


def check_heads(width, num_heads):
    """Raises ValueError unless the heads divide the width; the message names numbers of heads that do."""
    if num_heads < 1 or width % num_heads:
        fitting = [heads for heads in range(1, min(width, 64) + 1) if width % heads == 0]
        raise ValueError(
            f"`num_heads` must divide the width. Received: num_heads={num_heads}, width={width}. "
            f"Numbers of heads that divide {width}: {', '.join(map(str, fitting))}"
        )


def split_heads(x, num_heads):
    """(B, N, D) -> (B, K, N, d)."""
    x = ops.reshape(x, (-1, x.shape[1], num_heads, x.shape[2] // num_heads))  # (B, N, K, d)
    return ops.transpose(x, (0, 2, 1, 3))  # (B, K, N, d)


def merge_heads(x):
    """(B, K, N, d) -> (B, N, D)."""
    x = ops.transpose(x, (0, 2, 1, 3))  # (B, N, K, d)
    return ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3]))  # (B, N, D)


def attention_weights(query, key):
    """softmax(q k^T / sqrt(d)) of the paper's equation 6: (B, K, Nq, d), (B, K, Nk, d) -> (B, K, Nq, Nk).

    The softmax is computed in float32 at least, whatever the inputs are, and cast back.
    """
    query = query * (query.shape[-1] ** -0.5)
    logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, K, Nq, Nk)
    precise = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    return ops.cast(ops.softmax(precise, axis=-1), logits.dtype)  # (B, K, Nq, Nk)


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention, the MSA of the paper's equation 2 and appendix A, with biases.

    One Dense layer makes queries, keys and values, in this order along its outputs. Kernels are Xavier uniform, biases
    zeros, as in the paper's code.

    Input: (B, N, D). Output: (B, N, D), and the attention weights (B, K, N, N) if asked for; row i says where token i
        looks.

    Args:
        num_heads: K.
        dropout: Rate of dropout on the attention weights.
        seed: Seed of that dropout.

    Raises:
        ValueError: The heads do not divide the width (when built).
    """

    def __init__(self, num_heads, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.seed = seed
        self.dropout = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape):
        width = input_shape[-1]
        check_heads(width, self.num_heads)
        # Xavier's limit for one (D, D) kernel, sqrt(6 / (D + D)), is this one's; glorot_uniform would see (D, 3D).
        xavier = keras.initializers.VarianceScaling(1.0, "fan_in", "uniform")
        self.qkv = keras.layers.Dense(3 * width, kernel_initializer=xavier, dtype=self.dtype_policy, name="qkv")
        self.qkv.build(input_shape)
        self.out = keras.layers.Dense(width, dtype=self.dtype_policy, name="out")
        self.out.build(input_shape)

    def call(self, tokens, training=None, return_attention=False):
        query, key, value = (split_heads(x, self.num_heads) for x in ops.split(self.qkv(tokens), 3, axis=-1))
        weights = attention_weights(query, key)  # (B, K, N, N)
        mixed = ops.matmul(self.dropout(weights, training=training), value)  # (B, K, N, d)
        output = self.out(merge_heads(mixed))  # (B, N, D)
        return (output, weights) if return_attention else output

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"num_heads": self.num_heads, "dropout": self.dropout_rate, "seed": self.seed}
        return {**super().get_config(), **config}
