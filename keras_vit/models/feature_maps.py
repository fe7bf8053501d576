"""Feature maps of a Vision Transformer's blocks, for heads that detect or segment. B batch, h w patch grid, D width."""

import math
from collections.abc import Sequence

from keras import ops

from keras_vit.integers import is_integer


def feature_maps(model, images, blocks=None, normalized=False, training=None) -> list:
    """The tokens of the patches after some blocks, as maps: timm's `forward_intermediates`.

    Args:
        model: A `VisionTransformer`.
        images: (B, H, W, 3) from `model.preprocess`, or a `keras.Input` of this shape, for a functional model.
        blocks: Numbers of blocks, from 1 to the model's depth; by default at each quarter of it, 3, 6, 9 and 12 of 12.
            Blocks after the last of them are not computed.
        normalized: Apply the model's final layer normalization to each map.
        training: See `keras.layers.Layer`.

    Returns:
        One (B, h, w, D) map per number, in their order, in the model's compute dtype; [(B, 14, 14, 384), ...] for S/16
        at 224 pixels.

    Raises:
        ValueError: A number is not that of a block; `normalized` for a model that normalizes after pooling; a model
            with `patch_dropout`, unless training=False.
    """
    depth = model.config.depth
    blocks = sorted({math.ceil(depth * quarter / 4) for quarter in (1, 2, 3, 4)}) if blocks is None else blocks
    if not isinstance(blocks, Sequence) or not blocks or not all(is_integer(n) and n <= depth for n in blocks):
        raise ValueError(
            f"Expected `blocks` to be a list of numbers from 1 to {depth}, the model's number of blocks. Received: "
            f"{blocks!r}"
        )
    if normalized and model.encoder.norm is None:
        raise ValueError(
            "normalized=True requires a final layer normalization, but this model normalizes after pooling "
            "(norm_after_pooling=True). Use normalized=False."
        )
    if model.config.patch_dropout and training is not False:
        raise ValueError(
            f"Maps require all patches, but this model drops some in training (patch_dropout="
            f"{model.config.patch_dropout}). Pass training=False, or load it by "
            "keras_vit.load(file, patch_dropout=0.0)."
        )
    found: dict = {}  # tokens (B, N, D) by number

    def run(block, tokens):
        number = len(found) + 1
        found[number] = block(tokens, training=training) if number <= max(blocks) else tokens
        return found[number]

    model.apply_blocks(model.add_tokens(model.embed(images), training=training), run)
    norm = model.encoder.norm if normalized else lambda tokens: tokens
    patches = [norm(found[number])[:, model.prefix_tokens :] for number in blocks]  # (B, h*w, D)
    return [ops.reshape(tokens, (-1, *model.grid, model.config.width)) for tokens in patches]
