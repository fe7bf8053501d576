"""Checks of what the kinds of recipes do not support, as field_checks.py."""

import math
import os

from keras_vit.images import patch_grid
from keras_vit.recipes.masked_autoencoder.masked_count import masked_count
from keras_vit.recipes.recipe import Distillation, MaskedAutoencoder, Recipe, SelfSupervised
from keras_vit.recipes.training.variant_checks import BIT, check_image_size
from keras_vit.variants import parse_variant


def check_kind(recipe: Recipe):
    """Raises ValueError for combinations that this kind of recipe does not support."""
    is_bit = recipe.architecture.variant.startswith(BIT) and not getattr(recipe, "weights", None)
    if is_bit and isinstance(recipe, SelfSupervised | Distillation):
        raise ValueError(
            f"A {type(recipe).__name__} recipe requires a Vision Transformer: a BiT has no patches to mask and no "
            f"distillation token. Received: architecture.variant={recipe.architecture.variant!r}"
        )
    augment = recipe.data.augment
    if isinstance(recipe, SelfSupervised) and (augment.mixup_alpha or augment.cutmix_alpha):
        raise ValueError(
            "Pre-training without labels has no labels to mix. Set data.augment.mixup_alpha=0.0 and "
            "data.augment.cutmix_alpha=0.0."
        )
    if isinstance(recipe, SelfSupervised) and recipe.architecture.patch_dropout:
        raise ValueError(
            "Pre-training without labels predicts patches, and a masked autoencoder drops the masked ones already. "
            f"Received: architecture.patch_dropout={recipe.architecture.patch_dropout}. Use "
            "architecture.patch_dropout=0.0."
        )
    if isinstance(recipe, MaskedAutoencoder):
        _check_autoencoder(recipe)
    if isinstance(recipe, Distillation):
        _check_teacher(recipe)


def _check_autoencoder(recipe):
    """Raises ValueError for an encoder that cannot encode a part of the patches, or a decoder that cannot be built."""
    architecture, width, heads = recipe.architecture, recipe.decoder_width, recipe.decoder_heads
    variant = parse_variant(architecture.variant)
    if architecture.position_embedding == "relative":
        raise ValueError(
            "A masked autoencoder encodes a part of the patches, but relative positions require all. Received: "
            "architecture.position_embedding='relative'. Use architecture.position_embedding='sincos_2d'."
        )
    if "resnet_stages" in variant:
        raise ValueError(
            "A masked autoencoder encodes each patch from its own pixels, but a ResNet mixes them with those of masked "
            f"patches. Received: architecture.variant={architecture.variant!r}. Use one without a ResNet, such as "
            f"architecture.variant={architecture.variant.rpartition('+')[2]!r}."
        )
    step = math.lcm(heads, 4)
    if width % step:
        raise ValueError(
            "decoder_width must be a multiple of decoder_heads and, for sine and cosine positions, of 4. Received: "
            f"decoder_width={width}, decoder_heads={heads}. Use decoder_width={-(-width // step) * step}."
        )
    check_image_size(architecture, recipe.data)
    masked_count(math.prod(patch_grid(recipe.data.image_size, variant["patch_size"])), recipe.masked_fraction)


def _check_teacher(recipe):
    # Checkpoint names such as "vit/imagenet21k/ViT-B_16" or "hf:owner/name" are not paths.
    is_path = recipe.teacher and (recipe.teacher.endswith(".keras") or os.path.isabs(recipe.teacher))
    if not recipe.teacher or (is_path and not _exists(recipe.teacher)):
        raise ValueError(
            "Distillation requires a teacher: an existing .keras file or the folder of a SavedModel. "
            f"Received: teacher={recipe.teacher!r}"
        )


def _exists(path) -> bool:
    if "://" not in path:
        return os.path.exists(path)
    import tensorflow as tf  # takes seconds

    return tf.io.gfile.exists(path)
