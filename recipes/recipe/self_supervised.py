"""The recipes without labels. No TensorFlow import here."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.recipes.recipe.data import Data
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.training import Architecture, Optimizer, Run, require_patches
from keras_vit.recipes.recipe.values import Checked
from keras_vit.variants import parse_variant

IMAGENET_IMAGES = 1_281_167


class Unlabeled(Checked):
    """What the recipes without labels share: random initial weights, and a length in steps."""

    has_labels: ClassVar[Literal[False]] = False
    has_teacher: ClassVar[bool] = False
    weights: ClassVar[None] = None
    total_epochs: ClassVar[None] = None
    method: ClassVar[str]  # for model cards, after "Pre-trained here"

    architecture: Architecture
    data: Data

    _check_variant = require_patches

    def _check_mixing(self):
        augment = self.data.augment
        if augment.mixes:
            alphas = {f"data.augment.{name}": getattr(augment, name) for name in ("mixup_alpha", "cutmix_alpha")}
            mixing = {name: alpha for name, alpha in alphas.items() if alpha}
            raise RecipeError("Pre-training without labels has no labels to mix.", mixing, dict.fromkeys(mixing, 0.0))

    def _check_patch_dropout(self):
        if self.architecture.patch_dropout:
            raise RecipeError(
                "Pre-training without labels predicts patches, and a masked autoencoder drops the masked ones already.",
                {"architecture.patch_dropout": self.architecture.patch_dropout},
                {"architecture.patch_dropout": 0.0},
            )


@dataclass(frozen=True)
class MaskedPatch(Unlabeled):
    """Masked-patch pre-training; `MaskedPatch()` has the optimizer and schedule of the paper's appendix B.1.2.

    Args:
        target: Prediction target of a corrupted patch: its mean color at 3 bits per channel, the 3-bit colors of the
            patch reduced to 4 x 4 pixels, or its pixels (L2 regression).
        corrupted_fraction: Fraction of the patches that is corrupted, exact in every image.
        masked_fraction: Fraction of the corrupted patches whose embedding becomes the learnable [mask] embedding.
        replaced_fraction: Fraction that gets another patch's embedding; the rest is unchanged.
        total_steps: Length of the training.
    """

    method: ClassVar[str] = "by predicting corrupted patches, without labels (appendix B.1.2 of the ViT paper)"

    architecture: Architecture = field(default_factory=Architecture)
    data: Data = field(default_factory=lambda: Data(batch_size=4096))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(learning_rate=2e-4, warmup_steps=10_000))
    run: Run = field(default_factory=Run)
    target: Literal["mean_color", "downsampled_color", "pixels"] = "mean_color"
    corrupted_fraction: float = 0.5
    masked_fraction: float = 0.8
    replaced_fraction: float = 0.1
    total_steps: int = 1_000_000

    def _check_target(self):
        variant = self.architecture.variant
        if self.target != "downsampled_color" or self.architecture.is_bit:
            return
        if parse_variant(variant)["patch_size"] < 4:
            raise RecipeError(
                "Patches that are reduced to 4 x 4 pixels must not be smaller.",
                {"architecture.variant": variant, "target": self.target},
                {"target": "mean_color"},
            )

    def _check_fractions(self):
        if self.masked_fraction + self.replaced_fraction > 1:
            raise RecipeError(
                "Of the corrupted patches, those that are masked and those that are replaced are at most all.",
                {"masked_fraction": self.masked_fraction, "replaced_fraction": self.replaced_fraction},
                {"masked_fraction": 0.8, "replaced_fraction": 0.1},
            )


@dataclass(frozen=True)
class MaskedAutoencoder(Unlabeled):
    """Pre-training of a masked autoencoder (MAE, arXiv 2111.06377); `MaskedAutoencoder()` has the settings of table 8.

    The encoder sees the visible patches only; a small decoder, which is discarded, predicts the pixels of the others.

    Args:
        architecture: The encoder. With "gap" there is no class token, which the paper found to work similarly well.
        masked_fraction: Fraction of the patches that is masked, exact in every image.
        decoder_depth: Number of blocks of the decoder.
        decoder_width: Width of the decoder; its MLPs are 4 times as wide.
        decoder_heads: Number of attention heads of the decoder.
        normalize_targets: Predict the pixels of each patch minus their mean, divided by their standard deviation.
        total_steps: Length of the training.
    """

    method: ClassVar[str] = "as the encoder of a masked autoencoder, without labels (MAE, arXiv 2111.06377)"

    architecture: Architecture = field(
        default_factory=lambda: Architecture(
            pooling="gap", position_embedding="sincos_2d", initialization="mae", gelu="erf"
        )
    )
    data: Data = field(
        default_factory=lambda: Data(
            batch_size=4096,
            crop="torchvision",
            min_crop_area=0.2,
            interpolation="bicubic",
            antialias=True,
            mean=IMAGENET["mean"],
            std=IMAGENET["std"],
        )
    )
    optimizer: Optimizer = field(
        default_factory=lambda: Optimizer(
            name="adamw",
            learning_rate=1.5e-4 * 4096 / 256,
            warmup_steps=40 * IMAGENET_IMAGES // 4096,
            weight_decay=0.05,
            global_clipnorm=None,
            beta_2=0.95,
        )
    )
    run: Run = field(default_factory=Run)
    masked_fraction: float = 0.75
    decoder_depth: int = 8
    decoder_width: int = 512
    decoder_heads: int = 16
    normalize_targets: bool = True
    total_steps: int = 800 * IMAGENET_IMAGES // 4096

    def _check_encoder(self):
        """Raises RecipeError for an encoder that cannot encode a part of the patches."""
        architecture = self.architecture
        if architecture.position_embedding in ("relative", "rotary"):
            raise RecipeError(
                "A masked autoencoder encodes a part of the patches, but positions of this kind require all.",
                {"architecture.position_embedding": architecture.position_embedding},
                {"architecture.position_embedding": "sincos_2d"},
            )
        if not architecture.is_bit and "resnet_stages" in parse_variant(architecture.variant):
            raise RecipeError(
                "A masked autoencoder encodes each patch from its own pixels, but a ResNet mixes them with those of "
                "masked patches.",
                {"architecture.variant": architecture.variant},
                {"architecture.variant": architecture.variant.rpartition("+")[2]},
            )

    def _check_masked_fraction(self):
        if not 0 < self.masked_fraction < 1:
            raise RecipeError(
                "Some patches must be masked and some visible.",
                {"masked_fraction": self.masked_fraction},
                {"masked_fraction": 0.75},
            )

    def _check_decoder(self):
        step = math.lcm(self.decoder_heads, 4)
        if self.decoder_width % step:
            raise RecipeError(
                "The decoder's width must be divisible by its heads and, for sine and cosine positions, by 4.",
                {"decoder_width": self.decoder_width, "decoder_heads": self.decoder_heads},
                {"decoder_width": -(-self.decoder_width // step) * step},
            )
