"""Training on a random part of the patches. B batch, N tokens, M tokens that are kept, D width."""

import keras
from keras import ops

from keras_vit.layers.tokens import take_tokens


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
