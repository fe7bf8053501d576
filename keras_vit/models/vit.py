"""The Vision Transformer. B batch, H W pixels, h w patch grid, N tokens, D width, K heads."""

import keras

from keras_vit.images import as_size, patch_grid
from keras_vit.layers.encoder import Encoder
from keras_vit.layers.patches import PatchEmbedding
from keras_vit.layers.pooling import POOLINGS, AttentionPooling, AveragePooling, TokenPooling
from keras_vit.layers.positions import PositionEmbedding
from keras_vit.layers.tokens import ClassToken
from keras_vit.weights.transfer import copy_weights


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(keras.Model):
    """The model of "An Image is Worth 16x16 Words" (arXiv 2010.11929), section 3.1; see `keras_vit.ViT_B16()`.

    Input: (B, H, W, 3) float, RGB in [-1, 1] for published weights. Output: logits (B, num_classes), float32 also under
    mixed precision; with `num_classes=0` the features (B, D).

    The weights exist as soon as the model is made. Under a `mixed_bfloat16` policy the softmax, the statistics of layer
    normalisation and the head are computed in float32.

    Args:
        image_size: Pixels, one number or (height, width).
        patch_size: Pixels, one number or (height, width); must divide the picture.
        depth, width, mlp_dim, num_heads: The shape of the encoder, see `keras_vit.variants`.
        num_classes: Outputs of the head, which starts at zeros; 0 for no head.
        pooling: "token" (the class token), "gap" (mean of the patches), "map" (attention), or "none" (all tokens).
        class_token: Whether there is one; by default only with "token" and "none".
        representation_size: Width of a hidden tanh layer before the head, as in the paper's pre-training; None for
            none.
        dropout: Rate after the positions and in the blocks, see `EncoderBlock`.
        attention_dropout: Rate on the attention weights.
        stochastic_depth: Rate of the last block's residual branches, growing linearly from 0 at the first.
        gelu: "tanh" (the paper's code) or "erf" (ports to PyTorch).
        epsilon: Of the layer normalisations.
        seed: Seed of all dropout.

    Raises:
        ValueError: A patch that does not divide the picture, heads that do not divide the width, an unknown pooling.
    """

    def __init__(
        self,
        *,
        image_size,
        patch_size,
        depth,
        width,
        mlp_dim,
        num_heads,
        num_classes=1000,
        pooling="token",
        class_token=None,
        representation_size=None,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        gelu="tanh",
        epsilon=1e-6,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}. Received: {pooling!r}")
        has_token = pooling in ("token", "none") if class_token is None else class_token
        if pooling == "token" and not has_token:
            raise ValueError("pooling='token' reads the class token, so class_token=False cannot go with it.")
        self.image_size = as_size(image_size)
        self.patch_size = as_size(patch_size, "patch_size")
        self.grid = patch_grid(self.image_size, self.patch_size)
        self.num_classes = num_classes
        self.prefix_tokens = int(has_token)
        self.arguments = {
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "depth": depth,
            "width": width,
            "mlp_dim": mlp_dim,
            "num_heads": num_heads,
            "num_classes": num_classes,
            "pooling": pooling,
            "class_token": has_token,
            "representation_size": representation_size,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
            "gelu": gelu,
            "epsilon": epsilon,
            "seed": seed,
        }
        dtype = self.dtype_policy
        self.patch_embedding = PatchEmbedding(width, self.patch_size, dtype=dtype, name="patch_embedding")
        self.class_token = ClassToken(dtype=dtype, name="class_token") if has_token else None
        self.positions = PositionEmbedding(self.grid, self.prefix_tokens, dtype=dtype, name="positions")
        self.dropout = keras.layers.Dropout(dropout, seed=seed, dtype=dtype, name="dropout")
        self.encoder = Encoder(
            depth,
            num_heads,
            mlp_dim,
            dropout,
            attention_dropout,
            stochastic_depth,
            gelu,
            epsilon,
            seed=None if seed is None else seed + 1,
            dtype=dtype,
            name="encoder",
        )
        self.pooling = self._pooling_layer()
        self.pre_logits = self._hidden_layer()
        self.head = self._head_layer()
        self.build((None, *self.image_size, 3))

    def _pooling_layer(self):
        pooling, options = self.arguments["pooling"], {"dtype": self.dtype_policy, "name": "pooling"}
        if pooling == "token":
            return TokenPooling(**options)
        if pooling == "gap":
            return AveragePooling(self.prefix_tokens, **options)
        if pooling == "map":
            names = ("num_heads", "mlp_dim", "gelu", "epsilon")
            return AttentionPooling(*(self.arguments[name] for name in names), **options)
        return None

    def _hidden_layer(self):
        units = self.arguments["representation_size"]
        if not units:
            return None
        options = {"kernel_initializer": "lecun_normal", "dtype": self.dtype_policy, "name": "pre_logits"}
        return keras.layers.Dense(units, activation="tanh", **options)

    def _head_layer(self):
        if not self.num_classes:
            return None
        precise = keras.backend.result_type(self.compute_dtype, "float32")
        return keras.layers.Dense(self.num_classes, kernel_initializer="zeros", dtype=precise, name="head")

    def build(self, input_shape):
        for layer, shape in self._stages(input_shape):
            layer.build(shape)

    def compute_output_shape(self, input_shape):
        *_, (last, shape) = self._stages(input_shape)
        return last.compute_output_shape(shape)

    def _stages(self, shape):
        """The layers in the order of the forward pass, each with the shape of its input."""
        tokens = (self.patch_embedding, self.class_token, self.positions, self.dropout, self.encoder)
        for layer in (*tokens, self.pooling, self.pre_logits, self.head):
            if layer is not None:
                yield layer, shape
                shape = layer.compute_output_shape(shape)

    def call(self, images, training=None):
        features = self.features(images, training=training)
        return self.head(features) if self.head else features

    def features(self, images, training=False):
        """What the head sees: (B, H, W, 3) -> (B, D), (B, N, D) if unpooled, (B, representation_size) after tanh."""
        return self.pool(self.encode(self.embed(images), training=training))

    def embed(self, images):
        """Pictures to patch embeddings, before class token and positions: (B, H, W, 3) -> (B, h * w, D)."""
        size = tuple(images.shape[1:3])
        if None not in size and size != self.image_size:
            raise ValueError(
                f"This model takes pictures of {self.image_size} pixels (height, width). Received: {size}. "
                f"Resize the pictures, or the model with model.resized({size})."
            )
        return self.patch_embedding(images)  # (B, h*w, D)

    def encode(self, embeddings, training=False, return_attention=False):
        """Patch embeddings (B, h * w, D) to encoded tokens (B, N, D), and attention (B, depth, K, N, N) if wanted."""
        tokens = self.class_token(embeddings) if self.class_token else embeddings  # (B, N, D)
        tokens = self.dropout(self.positions(tokens), training=training)  # (B, N, D)
        return self.encoder(tokens, training=training, return_attention=return_attention)

    def pool(self, tokens):
        """The encoder's output (B, N, D) to features, see `features`."""
        pooled = self.pooling(tokens) if self.pooling else tokens
        return self.pre_logits(pooled) if self.pre_logits else pooled

    def attention_maps(self, images):
        """Attention weights of every block: (B, H, W, 3) -> (B, depth, K, N, N); row i says where token i looks."""
        return self.encode(self.embed(images), return_attention=True)[1]

    def with_head(self, num_classes: int):
        """Returns a new model with the same weights and a new head of zeros; 0 for no head.

        The hidden tanh layer of pre-training goes too, as the paper does for fine-tuning (appendix B.1.1).
        """
        model = self._remade(num_classes=num_classes, representation_size=None)
        copy_weights(self, model, skip=("head", "pre_logits"))
        return model

    def resized(self, image_size, method: str = "corners"):
        """Returns a new model for another picture size with the same weights; positions by `resample_grid(method)`."""
        model = self._remade(image_size=image_size)
        copy_weights(self, model, method=method)
        return model

    def _remade(self, **changes):
        return type(self).from_config({**self.get_config(), **changes})

    def get_config(self):
        return {**super().get_config(), **self.arguments}
