"""Groups of weights for fine-tuning: layer-wise learning rates, and weights without decay."""

from keras_vit.models.vit import VisionTransformer, group_of
from keras_vit.named_weights import named_weights

# Last parts of the names of weights without decay, as in big_vision (which decays kernels only) and timm: call
# `optimizer.exclude_from_weight_decay(var_names=NO_WEIGHT_DECAY)` before the optimizer is built.
NO_WEIGHT_DECAY = ["bias", "gamma", "beta", "table", "rows", "columns", "prefix", "token", "probe", "relative"]


def layer_groups(model) -> list[list]:
    """The trainable weights of a VisionTransformer, grouped from its input to its output.

    Returns:
        depth + 2 lists of variables: everything before the blocks (ResNet, patches, tokens, positions); one list per
        block, with the positions that are added before it; last normalization, pooling, heads and a subclass's layers.

    Raises:
        ValueError: The model is not a VisionTransformer.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(f"Expected a VisionTransformer. Received: {model.name}, a {type(model).__name__}")
    groups: list[list] = [[] for _ in range(model.config.depth + 2)]
    for name, variable in named_weights(model).items():
        if variable.trainable:
            groups[group_of(name, model.config.depth)].append(variable)
    return groups


def layer_wise_factors(model, decay: float) -> dict[str, float]:
    """Layer-wise learning-rate decay: factors on the learning rate that decrease from the head to the input.

    As in BEiT (arXiv 2106.08254) and MAE: 1 for the last group of `layer_groups`, `decay` for the one before it, then
    its square, and so on. timm's final normalization, before a token or MAP head, has the last block's factor.

    Args:
        model: A `VisionTransformer`.
        decay: Above 0 and at most 1; 0.65 to 0.75 is usual for B/16.

    Returns:
        The factor of each trainable variable by its path.

    Raises:
        ValueError: `decay` is out of range, or the model is not a VisionTransformer.
    """
    if not 0.0 < decay <= 1.0:
        raise ValueError(f"`decay` must be above 0 and at most 1. Received: {decay}")
    groups = layer_groups(model)
    return {variable.path: decay ** (len(groups) - 1 - i) for i, group in enumerate(groups) for variable in group}
