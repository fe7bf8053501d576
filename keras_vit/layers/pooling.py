"""Pooling: from tokens to one vector per image. B batch, N tokens, D width."""

import keras
from keras import ops

from keras_vit.layers.attention import attention_weights
from keras_vit.layers.composite import Composite
from keras_vit.layers.heads import check_heads, merge_heads, split_heads
from keras_vit.layers.mlp import Mlp
from keras_vit.layers.norm import LayerNorm

POOLINGS = ("token", "gap", "token_and_gap", "map", "none")


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPooling(keras.layers.Layer):
    """The class token, at index 0: the paper's equation 4. (B, N, D) -> (B, D).

    Args:
        count: Number of first tokens to average: 2 with DeiT's distillation token.
    """

    def __init__(self, count=1, **kwargs):
        super().__init__(**kwargs)
        self.count = count

    def call(self, tokens):
        return tokens[:, 0] if self.count == 1 else ops.mean(tokens[:, : self.count], axis=1)  # (B, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {**super().get_config(), "count": self.count}


@keras.saving.register_keras_serializable(package="keras_vit")
class AveragePooling(keras.layers.Layer):
    """Mean of the patch tokens (global average pooling, the paper's appendix D.3). (B, N, D) -> (B, D).

    Args:
        prefix_tokens: Number of tokens before the patches, which are skipped: 1 with a class token, else 0.
    """

    def __init__(self, prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.prefix_tokens = prefix_tokens

    def call(self, tokens):
        return ops.mean(tokens[:, self.prefix_tokens :], axis=1)  # (B, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {**super().get_config(), "prefix_tokens": self.prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenAndAveragePooling(AveragePooling):
    """The class token, then the mean of the patch tokens: the input of DINOv2's linear heads. (B, N, D) -> (B, 2 D).

    Code: facebookresearch/dinov2, dinov2/hub/classifiers.py, with one layer.
    """

    def call(self, tokens):
        # XNNPACK takes no slice that removes an axis, as [:, 0] does.
        first = ops.squeeze(tokens[:, :1], axis=1)  # (B, D)
        return ops.concatenate([first, super().call(tokens)], axis=-1)  # (B, 2 D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 2 * input_shape[2])


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(Composite):
    """A learnable query attends to the tokens, then a residual MLP: the MAP head of big_vision. (B, N, D) -> (B, D).

    "Scaling Vision Transformers" (arXiv 2106.04560), section 3.2; code: big_vision, models/vit.py, `MAPHead`.

    Args:
        num_heads, mlp_dim, gelu, epsilon: See `BlockConfig`.
        prefix_tokens: Number of first tokens that are skipped.

    Raises:
        ValueError: The heads do not divide the width (when built).
    """

    def __init__(self, num_heads, mlp_dim, gelu="tanh", epsilon=1e-6, prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.prefix_tokens = prefix_tokens
        self.epsilon = epsilon
        self.norm = LayerNorm(epsilon, dtype=self.dtype_policy, name="norm")
        self.mlp = Mlp(mlp_dim, gelu=gelu, dtype=self.dtype_policy, name="mlp")

    def build(self, input_shape):
        width = input_shape[-1]
        check_heads(width, self.num_heads)
        self.probe = self.add_weight(shape=(1, 1, width), initializer="glorot_uniform", name="probe")
        self.query = keras.layers.Dense(width, dtype=self.dtype_policy, name="query")
        self.key = keras.layers.Dense(width, dtype=self.dtype_policy, name="key")
        self.value = keras.layers.Dense(width, dtype=self.dtype_policy, name="value")
        self.out = keras.layers.Dense(width, dtype=self.dtype_policy, name="out")
        for layer in (self.query, self.key, self.value, self.out, self.norm, self.mlp):
            layer.build(input_shape)

    def call(self, tokens):
        tokens = tokens[:, self.prefix_tokens :] if self.prefix_tokens else tokens
        query = split_heads(self.query(ops.cast(self.probe, tokens.dtype)), self.num_heads)  # (1, K, 1, d)
        key, value = (split_heads(layer(tokens), self.num_heads) for layer in (self.key, self.value))
        mixed = ops.matmul(attention_weights(query, key), value)  # (B, K, 1, d)
        pooled = self.out(merge_heads(mixed))  # (B, 1, D)
        pooled = pooled + self.mlp(self.norm(pooled))  # (B, 1, D)
        return pooled[:, 0]  # (B, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        config = {
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp.mlp_dim,
            "gelu": self.mlp.gelu,
            "epsilon": self.epsilon,
            "prefix_tokens": self.prefix_tokens,
        }
        return {**super().get_config(), **config}
