"""Training of a part of a model: the rest is frozen."""

from keras_vit import VisionTransformer
from keras_vit.models.layer_decay import layer_groups
from keras_vit.models.vit import HEADS
from keras_vit.recipes.recipe_errors import RecipeError


def train_last_blocks(model, count: int):
    """Freezes all of a model before its last Transformer blocks; compile it afterwards.

    The backward pass ends at the first of these blocks: with 0, a step costs little more than a prediction.

    Args:
        model: A `VisionTransformer`; a BiT only for 0.
        count: Number of blocks to train, with the normalization, pooling and head after them; with 0 the head alone.

    Raises:
        RecipeError: The model has fewer blocks.
    """
    if count == 0:
        for layer in model.layers:
            layer.trainable = layer.name in HEADS
        return
    depth = model.config.depth if isinstance(model, VisionTransformer) else 0
    if count > depth:
        raise RecipeError(
            f"{model.name} has {depth} Transformer blocks. None trains all of it.",
            {"trainable_blocks": count},
            [{"trainable_blocks": depth}, {"trainable_blocks": None}],
        )
    for group in layer_groups(model)[: depth + 1 - count]:
        for variable in group:
            variable.trainable = False


def freeze_pooling(vit):
    """Freezes what pre-training does not call: Keras on JAX decays trainable weights that have no gradients, too."""
    for layer in (vit.pooling, vit.pooled_norm):
        if layer is not None:
            layer.trainable = False
