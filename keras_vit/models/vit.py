"""The Vision Transformer. B batch, H W pixels, h w patch grid, N tokens, D width, K heads."""

import math
import re
from collections.abc import Sequence
from typing import ClassVar

import keras
from keras import ops

from keras_vit.images import as_size, is_integer, patch_grid
from keras_vit.keras_internals import set_trainable
from keras_vit.layers.config import fields_as_keywords
from keras_vit.layers.xla.recompute import Dropout
from keras_vit.models import vit_layers
from keras_vit.models.config import ViTConfig
from keras_vit.models.copying import copy_weights
from keras_vit.models.image_model import ImageModel, linear_head
from keras_vit.named_weights import in_part, named_layers

HEADS = ("head", "head_distillation", "pre_logits")


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(ImageModel):
    """The model of "An Image is Worth 16x16 Words" (arXiv 2010.11929), section 3.1; see `keras_vit.ViT_B16()`.

    Input: (B, H, W, 3) float, RGB from `preprocess`: in [-1, 1] for Google's weights. Output: logits (B, num_classes),
    float32 also under mixed precision; with `pooling="none"` logits of every token, (B, N, num_classes); with
    `num_classes=0` `features`.

    The model is built, with weights, when it is constructed. Under a `mixed_bfloat16` policy the softmax, the
    statistics of layer normalization and the head are computed in float32.

    Args:
        config: A `ViTConfig`, or its fields as keyword arguments: `image_size`, `patch_size`, `depth`, `width`,
            `mlp_dim`, `num_heads`, `num_classes`, `pooling`, ...; each is explained there.

    Raises:
        ValueError: A patch that does not divide the image, heads that do not divide the width, an unknown name, or
            arguments that exclude each other. When called: the input is not a batch of float images of this size.
    """

    size_fix = "the model with model.resized({size})"
    head_layers = HEADS
    head_fields: ClassVar[dict] = {"multi_label": False, "projection": False, "representation_size": None}

    @fields_as_keywords(ViTConfig)
    def __init__(self, *, config: ViTConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.patch_size = config.patch_size
        self.grid = config.grid
        self.prefix_tokens = config.prefix_tokens

        dtype = self.dtype_policy
        self.backbone = vit_layers.backbone(config, dtype)
        stride = self.backbone.total_stride if self.backbone else 1
        self.patch_embedding = vit_layers.patch_embedding(config, stride, dtype)
        self.register_tokens, self.distillation_token, self.class_token = vit_layers.tokens(config, dtype)
        self.positions = vit_layers.positions(config, dtype)
        self.block_positions = vit_layers.block_positions(config, self.positions, dtype)
        self.dropout = Dropout(config.dropout, seed=config.seed, dtype=dtype, name="dropout")
        self.patch_dropout = vit_layers.patch_dropout(config, dtype)
        self.encoder = vit_layers.encoder(config, dtype)
        self.pooling = vit_layers.pooling(config, dtype)
        self.pooled_norm = vit_layers.pooled_norm(config, dtype)
        self.pre_logits = vit_layers.pre_logits(config, dtype)
        self.head = linear_head(config.num_classes, dtype)
        self.head_distillation = (
            linear_head(config.num_classes, dtype, "head_distillation") if config.distillation else None
        )
        self._create_weights()

    def _token_layers(self):
        """The layers between patch embedding and encoder, in the order of the forward pass."""
        tokens = (self.register_tokens, self.distillation_token, self.class_token)  # each is prepended
        order = (*tokens, self.positions) if self.config.prefix_positions else (self.positions, *tokens)
        return [layer for layer in (*order, self.dropout, self.patch_dropout) if layer is not None]

    def _build_layers(self, input_shape):
        for layer, shape in self._stages(input_shape):
            layer.build(shape)
            if layer is self.encoder:
                for positions in self.block_positions:
                    if not positions.built:  # shared ones belong to the stem
                        positions.build(shape)
        if self.head_distillation is not None:
            self.head_distillation.build((input_shape[0], self.config.width))

    def _output_shape(self, input_shape):
        *_, (last, shape) = self._stages(input_shape)
        return last.compute_output_shape(shape)

    def _stages(self, shape):
        """The layers in the order of the forward pass, each with the shape of its input."""
        before = (self.backbone, self.patch_embedding, *self._token_layers())
        after = (self.encoder, self.pooling, self.pooled_norm, self.pre_logits, self.head)
        for layer in (*before, *after):
            if layer is not None:
                yield layer, shape
                shape = layer.compute_output_shape(shape)

    def call(self, images, training=None):
        if self.head_distillation is not None:
            first, second = self.both_heads(images, training=training)
            return (first + second) / 2
        return super().call(images, training=training)

    def both_heads(self, images, training=False):
        """Logits of the class token's and the distillation token's heads of a DeiT, (B, num_classes) each."""
        if self.head_distillation is None:
            raise ValueError("Only a model with distillation=True and num_classes > 0 has two heads.")
        tokens = self.encode(self.embed(images), training=training, read=self.pooling.count)  # (B, 2, D)
        return self.head(tokens[:, 0]), self.head_distillation(tokens[:, 1])

    def features(self, images, training=False):
        """The head's input: (B, H, W, 3) -> (B, D), (B, N, D) if not pooled, (B, representation_size) after tanh.

        With distillation, the mean of the class and the distillation token, each of which is the input of one head.
        """
        read = self.pooling.count if self.config.pooling == "token" else None
        return self.pool(self.encode(self.embed(images), training=training, read=read))

    def embed(self, images):
        """Images to patch embeddings, before class token and positions: (B, H, W, 3) -> (B, h * w, D)."""
        images = self._checked_images(images)
        return self.patch_embedding(self.backbone(images) if self.backbone else images)  # (B, h*w, D)

    def encode(self, embeddings, training=False, return_attention=False, read=None):
        """Patch embeddings (B, h * w, D) to encoded tokens (B, N, D), and attention (B, depth, K, N, N) on request.

        With `read`, a number of first tokens or indices (B, M), only these are returned, (B, M, D), and the last block
        computes no others.
        """
        tokens = self.add_tokens(embeddings, training=training)
        options = {"return_attention": return_attention, "positions": self.block_positions, "read": read}
        return self.encoder(tokens, training=training, **options)

    def apply_blocks(self, tokens, run):
        """Tokens (B, N, D) after the last block, not normalized; `run(block, tokens)` applies each block."""
        return self.encoder.apply_blocks(tokens, run, self.block_positions)

    def add_tokens(self, embeddings, training=False):
        """Patch embeddings (B, h * w, D) to the encoder's input (B, N, D): adds positions and the other tokens.

        In training with `patch_dropout`, N is the number of tokens that are kept.
        """
        tokens, random = embeddings, (self.dropout, self.patch_dropout)
        for layer in self._token_layers():
            tokens = layer(tokens, training=training) if layer in random else layer(tokens)  # (B, N, D)
        return tokens

    def pool(self, tokens):
        """The encoder's output (B, N, D) to the head's input, see `features`."""
        for layer in (self.pooling, self.pooled_norm, self.pre_logits):
            tokens = tokens if layer is None else layer(tokens)
        return tokens

    def attention_maps(self, images, blocks=None):
        """Attention weights: (B, H, W, 3) -> (B, depth, K, N, N); row i is token i's.

        With `blocks`, numbers from 1 to the model's depth, those of these blocks in their order, (B, len(blocks), K, N,
        N); no others are kept in memory.
        """
        if blocks is None:
            return self.encode(self.embed(images), return_attention=True)[1]
        self._check_blocks(blocks)
        weights: dict = {}  # (B, K, N, N) by number; None for a block that is not requested

        def run(block, tokens):
            number = len(weights) + 1
            weights[number] = None
            if number in blocks:
                tokens, weights[number] = block(tokens, training=False, return_attention=True)
                return tokens
            return block(tokens, training=False) if number < max(blocks) else tokens

        self.apply_blocks(self.add_tokens(self.embed(images)), run)
        return ops.stack([weights[number] for number in blocks], axis=1)

    def _check_blocks(self, blocks):
        """Raises a ValueError unless these are numbers of blocks."""
        depth = self.config.depth
        if not isinstance(blocks, Sequence) or not blocks or not all(is_integer(n) and n <= depth for n in blocks):
            raise ValueError(
                f"Expected `blocks` to be a list of numbers from 1 to {depth}, the model's number of blocks. Received: "
                f"{blocks!r}"
            )

    def feature_maps(self, images, blocks=None, normalized=False, training=None, return_prefix_tokens=False) -> list:
        """The tokens of the patches after some blocks, as maps: timm's `forward_intermediates`.

        Args:
            images: (B, H, W, 3) from `preprocess`, or a `keras.Input` of this shape, for a functional model.
            blocks: Numbers of blocks, from 1 to the model's depth; by default at each quarter of it, 3, 6, 9 and 12 of
                12. Blocks after the last of them are not computed.
            normalized: Apply the model's final layer normalization to each map.
            training: See `keras.layers.Layer`.
            return_prefix_tokens: Return pairs of a map and the tokens before the patches (B, prefix_tokens, D), as
                `outputs_from` takes them.

        Returns:
            One (B, h, w, D) map per number, in their order, in the model's compute dtype; [(B, 14, 14, 384), ...] for
            S/16 at 224 pixels.

        Raises:
            ValueError: A number is not that of a block; `normalized` for a model that normalizes after pooling; a model
                with `patch_dropout`, unless training=False.
        """
        depth = self.config.depth
        blocks = sorted({math.ceil(depth * quarter / 4) for quarter in (1, 2, 3, 4)}) if blocks is None else blocks
        self._check_blocks(blocks)
        if normalized and self.encoder.norm is None:
            raise ValueError(
                "normalized=True requires a final layer normalization, but this model normalizes after pooling "
                "(norm_after_pooling=True). Use normalized=False."
            )
        if self.config.patch_dropout and training is not False:
            raise ValueError(
                f"Maps require all patches, but this model drops some in training (patch_dropout="
                f"{self.config.patch_dropout}). Pass training=False, or load it by "
                "keras_vit.load(file, patch_dropout=0.0)."
            )
        outputs: dict = {}  # tokens (B, N, D) by number

        def run(block, tokens):
            number = len(outputs) + 1
            outputs[number] = block(tokens, training=training) if number <= max(blocks) else tokens
            return outputs[number]

        self.apply_blocks(self.add_tokens(self.embed(images), training=training), run)
        norm = self.encoder.norm if normalized else lambda tokens: tokens
        tokens, prefix = [norm(outputs[number]) for number in blocks], self.prefix_tokens  # (B, N, D)
        maps = [ops.reshape(x[:, prefix:], (-1, *self.grid, self.config.width)) for x in tokens]
        return list(zip(maps, [x[:, :prefix] for x in tokens])) if return_prefix_tokens else maps

    def outputs_from(self, feature_map, prefix_tokens, block: int):
        """The model's outputs from a feature map, such as for Grad-CAM: the rest of the forward pass.

        Args:
            feature_map, prefix_tokens: (B, h, w, D) and (B, prefix_tokens, D) of `feature_maps`, not normalized. After
                the last block, the logits of a class token do not depend on the map: take the block before.
            block: The number of the block that returned them, from 1 to the model's depth.

        Returns:
            Logits (B, num_classes), or what the model returns.
        """
        self._check_blocks([block])
        patches = ops.reshape(feature_map, (-1, self.grid[0] * self.grid[1], self.config.width))
        tokens = ops.concatenate([prefix_tokens, patches], axis=1)  # (B, N, D)
        for i in range(block, self.config.depth):
            tokens = self.block_positions[i - 1](tokens) if self.block_positions else tokens
            tokens = self.encoder.blocks[i](tokens, training=False)
        tokens = tokens if self.encoder.norm is None else self.encoder.norm(tokens)
        if self.head_distillation is not None:
            return (self.head(tokens[:, 0]) + self.head_distillation(tokens[:, 1])) / 2
        features = self.pool(tokens)
        return self.head(features) if self.head else features

    def resized(self, image_size, resample: str = "corners", *, name: str | None = None):
        """Returns a new model for another image size with the same weights; positions are resampled.

        Args:
            image_size: Pixels, one number or (height, width).
            resample: See `resample_grid`.
            name: By default this model's name and a number, so that both fit into one model.

        Raises:
            ValueError: The patches do not fit, or the model has relative positions, which belong to one size.
        """
        return self.with_patch_size(self.patch_size, as_size(image_size), resample, name=name)

    def with_patch_size(self, patch_size, image_size=None, resample: str = "corners", *, name: str | None = None):
        """Returns a new model for patches of another size with the same weights: PI-resize of FlexiViT.

        The patch embedding is resampled, see `resample_patch_embedding`, and so are positions if the grid changes.
        FlexiViT's weights keep their accuracy (arXiv 2212.08013), with `resample="half_pixel"` the numbers of its code;
        others lose it, and are a start for fine-tuning.

        Args:
            patch_size: Pixels, one number or (height, width).
            image_size: Pixels, one number or (height, width); by default the model's. With twice the patch size and
                twice the image size, the grid of patches and the positions remain.
            resample: How positions are resampled, see `resample_grid`.
            name: See `resized`.

        Raises:
            ValueError: The patches do not fit; the model has relative positions, which belong to one grid; or, for
                another patch size, it has a ResNet, whose feature map is not resized as the image is.
        """
        size = self.image_size if image_size is None else as_size(image_size)
        patch = as_size(patch_size, "patch_size")
        if self.config.position_embedding == "relative" and patch_grid(size, patch) != self.grid:
            raise ValueError(
                "Relative positions are distances in the sequence of patches, which differ on another grid, so they "
                "cannot be resampled. Train at the new size, or use another position_embedding."
            )
        if self.backbone is not None and patch != self.patch_size:
            raise ValueError(
                "Patches of a ResNet's feature map cannot be resized as those of an image. Expected the patch size "
                f"{self.patch_size}, or a model without a ResNet. Received: patch_size={patch}"
            )
        model = self._rebuilt(name, image_size=size, patch_size=patch)
        copy_weights(self, model, (), resample)
        return model

    def freeze_encoder(self, trainable_blocks: int | None = 0):
        """Sets which weights are trained, whatever was frozen before: those from the last blocks on, or the head alone.

        Compile the model afterwards, and freeze other parts, such as the head, afterwards. Copies and .keras files
        preserve what is frozen, by this or by `trainable = False`, unless they are loaded by
        `keras_vit.load(file, trainable=True)`.

        Args:
            trainable_blocks: Number of last blocks to train, with the normalization, pooling and head after them; 0 for
                a linear probe, the head alone; None to train all, also what is before the first block. Layers that a
                subclass adds are trained like the head.

        Raises:
            ValueError: The model has fewer blocks.
        """
        depth = self.config.depth
        if trainable_blocks is not None and not (is_integer(trainable_blocks, minimum=0) and trainable_blocks <= depth):
            raise ValueError(
                f"Expected `trainable_blocks` from 0 to {depth}, the model's number of blocks, or None to train all. "
                f"Received: {trainable_blocks!r}"
            )
        set_trainable(self, True)
        for path, layer in named_layers(self).items() if trainable_blocks is not None else ():
            if trainable_blocks:
                is_frozen = group_of(f"{path}/", depth) <= depth - trainable_blocks
            else:
                is_frozen = not in_part(path, (*HEADS, "added"))
            if is_frozen:
                layer.trainable = False


def group_of(name: str, depth: int) -> int:
    """The number of the `layer_groups` that a weight of this name belongs to, see `named_weights`."""
    block = re.match(r"encoder/block_(\d+)/|positions_(\d+)/", name)
    if block:
        return 1 + int(block[1] or block[2])
    is_last = name.startswith(("encoder/", "pooling/", "pooled_norm/", "pre_logits/", "head", "added/"))
    return depth + 1 if is_last and not name.startswith("encoder/initial_norm/") else 0
