"""The Vision Transformer. B batch, H W pixels, h w patch grid, N tokens, D width, K heads."""

from dataclasses import asdict

import keras

from keras_vit import classification
from keras_vit.images import as_size, patch_grid
from keras_vit.layers.config import fields_as_keywords
from keras_vit.layers.xla.dropout import Dropout
from keras_vit.models import inputs, parts
from keras_vit.models.config import ViTConfig
from keras_vit.models.feature_maps import feature_maps
from keras_vit.models.inputs import check_not_quantized, checked_images, output_spec
from keras_vit.models.keras_files import save
from keras_vit.weights.transfer import copy_weights

HEADS = ("head", "head_distillation", "pre_logits")
FIX = "the model with model.resized({size})"


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(keras.Model):
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

    @fields_as_keywords(ViTConfig)
    def __init__(self, *, config: ViTConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.image_size = config.image_size
        self.patch_size = config.patch_size
        self.grid = config.grid
        self.num_classes = config.num_classes
        self.prefix_tokens = config.prefix_tokens

        dtype = self.dtype_policy
        self.backbone = parts.backbone(config, dtype)
        stride = self.backbone.total_stride if self.backbone else 1
        self.patch_embedding = parts.patch_embedding(config, stride, dtype)
        self.register_tokens, self.distillation_token, self.class_token = parts.tokens(config, dtype)
        self.positions = parts.positions(config, dtype)
        self.block_positions = parts.block_positions(config, self.positions, dtype)
        self.dropout = Dropout(config.dropout, seed=config.seed, dtype=dtype, name="dropout")
        self.patch_dropout = parts.patch_dropout(config, dtype)
        self.encoder = parts.encoder(config, dtype)
        self.pooling = parts.pooling(config, dtype)
        self.pooled_norm = parts.pooled_norm(config, dtype)
        self.pre_logits = parts.pre_logits(config, dtype)
        self.head = parts.head(config.num_classes, dtype)
        self.head_distillation = (
            parts.head(config.num_classes, dtype, "head_distillation") if config.distillation else None
        )
        self.build(self.input_shape)

    def _token_layers(self):
        """The layers between patch embedding and encoder, in the order of the forward pass."""
        tokens = (self.register_tokens, self.distillation_token, self.class_token)  # each is prepended
        order = (*tokens, self.positions) if self.config.prefix_positions else (self.positions, *tokens)
        return [layer for layer in (*order, self.dropout, self.patch_dropout) if layer is not None]

    def build(self, input_shape):
        if self.built:
            return
        for layer, shape in self._stages(input_shape):
            layer.build(shape)
            if layer is self.encoder:
                for positions in self.block_positions:
                    if not positions.built:  # shared ones belong to the stem
                        positions.build(shape)
        if self.head_distillation is not None:
            self.head_distillation.build((input_shape[0], self.config.width))

    def compute_output_shape(self, input_shape):
        *_, (last, shape) = self._stages(input_shape)
        return last.compute_output_shape(shape)

    def compute_output_spec(self, images, training=None):
        return output_spec(self, images, self.image_size, FIX)

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
        features = self.features(images, training=training)
        return self.head(features) if self.head else features

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
        images = checked_images(images, self.preprocessing, self.image_size, FIX)
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

    def preprocess(self, images):
        """Images of any size, pixels in [0, 255], to the model's input; see `Preprocessing`."""
        return self.preprocessing(images)

    def attention_maps(self, images):
        """Attention weights of every block: (B, H, W, 3) -> (B, depth, K, N, N); row i is token i's."""
        return self.encode(self.embed(images), return_attention=True)[1]

    feature_maps = feature_maps
    save = save
    input_shape = property(inputs.input_shape)
    output_shape = property(inputs.output_shape)
    preprocessing = property(inputs.preprocessing, inputs.set_preprocessing)
    class_names = property(classification.class_names, classification.set_class_names)
    multi_label = property(classification.is_multi_label, classification.set_multi_label)
    classify = classification.classify

    def with_head(self, num_classes: int, class_names=None):
        """Returns a new model with the same weights and a new head of zeros; 0 for no head.

        The hidden tanh layer of pre-training is also removed, as the paper does for fine-tuning (appendix B.1.1).
        """
        changes = {"class_names": class_names, "multi_label": False, "projection": False, "representation_size": None}
        model = self._rebuilt(num_classes=num_classes, **changes)
        copy_weights(self, model, skip=HEADS)
        return model

    def resized(self, image_size, resample: str = "corners"):
        """Returns a new model for another image size with the same weights; positions are resampled.

        Args:
            image_size: Pixels, one number or (height, width).
            resample: See `resample_grid`.

        Raises:
            ValueError: The patches do not fit, or the model has relative positions, which belong to one size.
        """
        return self.with_patch_size(self.patch_size, as_size(image_size), resample)

    def with_patch_size(self, patch_size, image_size=None, resample: str = "corners"):
        """Returns a new model for patches of another size with the same weights: PI-resize of FlexiViT.

        The patch embedding is resampled, see `resample_patch_embedding`, and so are positions if the grid changes.
        FlexiViT's weights keep their accuracy (arXiv 2212.08013), with `resample="half_pixel"` the numbers of its code;
        others lose it, and are a start for fine-tuning.

        Args:
            patch_size: Pixels, one number or (height, width).
            image_size: Pixels, one number or (height, width); by default the model's. With twice the patch size and
                twice the image size, the grid of patches and the positions remain.
            resample: How positions are resampled, see `resample_grid`.

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
        model = self._rebuilt(image_size=size, patch_size=patch)
        copy_weights(self, model, (), resample)
        return model

    def freeze_encoder(self):
        """Freezes everything before the head, for a linear probe; compile the model afterwards.

        `with_head`, `resized`, `with_patch_size` and .keras files do not preserve this, nor the first three
        `trainable = False` of the whole model: freeze the new model again, and load a file with compile=False.
        """
        for layer in self.layers:
            layer.trainable = layer.name in HEADS

    def _rebuilt(self, **changes):
        # Trainable, also if this model is frozen: its new head could not learn.
        return type(self).from_config({**self.get_config(), "trainable": True, **changes})

    def get_config(self):
        check_not_quantized(self)
        return {**super().get_config(), **asdict(self.config)}
