"""Learnable tokens before the patches. B batch, N tokens, D width."""

import keras
from keras import ops

from keras_vit.images import is_integer


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


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchDropout(keras.layers.Layer):
    """Keeps a fixed number of the patches of every image in training, drawn at random, and all tokens before them.

    "PatchDropout: Economizing Vision Transformers Using Patch Dropout" (arXiv 2208.07220) and "Scaling Language-Image
    Pre-training via Masking" (arXiv 2212.00794); timm's `PatchDropout`, which scales nothing either. The number of
    patches that are kept is max(1, floor(patches * (1 - rate))), so shapes are static; they are in random order.

    Input: (B, N, D) with the positions already added. Output: (B, M, D) in training; the input outside training.

    Args:
        rate: Fraction of the patches that is dropped, in [0, 1).
        prefix_tokens: Number of tokens before the patches, which are always kept, in their order.
        seed: Seed of the random draws.

    Raises:
        ValueError: The rate is outside [0, 1).
    """

    def __init__(self, rate, prefix_tokens=0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"`rate` must be at least 0 and below 1. Received: {rate}")
        self.rate = rate
        self.prefix_tokens = prefix_tokens
        self.seed = seed
        # Like keras.layers.Dropout: no random state for a layer that never draws.
        self.seed_generator = keras.random.SeedGenerator(seed) if rate else None
        self.built = True  # has no weights; `model.quantize` rejects layers that are not built

    def call(self, tokens, training=None):
        if not training or not self.rate:
            return tokens
        patches = tokens[:, self.prefix_tokens :]  # (B, patches, D)
        shape = (ops.shape(tokens)[0], patches.shape[1])
        noise = keras.random.uniform(shape, seed=self.seed_generator)  # (B, patches)
        kept = ops.argsort(noise, axis=1)[:, : self.count_kept(patches.shape[1])]
        return ops.concatenate([tokens[:, : self.prefix_tokens], take_tokens(patches, kept)], axis=1)  # (B, M, D)

    def count_kept(self, num_patches: int) -> int:
        """Number of patches of an image that are kept in training, at least one."""
        return max(1, int(num_patches * (1.0 - self.rate)))

    def compute_output_shape(self, input_shape):
        return input_shape  # outside training

    def compute_output_spec(self, tokens, training=None):
        batch, length, width = tokens.shape
        if training and self.rate:
            length = self.prefix_tokens + self.count_kept(length - self.prefix_tokens)
        return keras.KerasTensor((batch, length, width), self.compute_dtype)

    def get_config(self):
        own = {"rate": self.rate, "prefix_tokens": self.prefix_tokens, "seed": self.seed}
        return {**super().get_config(), **own}
