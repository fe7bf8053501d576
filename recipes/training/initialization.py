"""Start weights of projects whose code draws others than the paper's, which our layers draw themselves."""

import math

import numpy as np

DEVIATION = 0.02


def initialize(model, kind: str, seed: int):
    """Draws the start weights of a model with patches, or of one around it, as a project's code does.

    "vit" leaves those of google-research/vision_transformer. "deit" (facebookresearch/deit with timm 0.3.2): kernels,
    heads included, tokens and positions are normal with standard deviation 0.02, which their truncation at 100
    deviations leaves as it is; the patch embedding's kernel and bias are uniform within 1 / sqrt(P * P * 3), PyTorch's
    default for convolutions. "mae" (facebookresearch/mae, models_mae.py): as "deit" but for Xavier uniform kernels, of
    queries, keys and values as one (D, 3 D) and of the patch embedding as (P * P * 3, D). Both: other biases are zeros;
    normalizations, layer scales and the ResNet of a hybrid stay.

    Args:
        kind: "vit", "deit" or "mae".
        seed: Equal seeds draw equal weights, on all backends.
    """
    if kind == "vit":
        return
    rng = np.random.default_rng(seed)
    patches = getattr(model, "vit", model).patch_embedding.projection
    patch_limit = math.prod(patches.kernel.shape[:-1]) ** -0.5
    for variable in model.weights:
        shape, name = variable.shape, variable.path.split("/")[-1]
        if name in ("gamma", "beta") or "/backbone/" in variable.path:
            continue
        if variable is patches.bias or (variable is patches.kernel and kind == "deit"):
            values = rng.uniform(-patch_limit, patch_limit, shape)
        elif name == "bias":
            values = np.zeros(shape)
        elif name == "kernel" and kind == "mae":
            limit = math.sqrt(6 / (math.prod(shape[:-1]) + shape[-1]))
            values = rng.uniform(-limit, limit, shape)
        else:
            values = rng.normal(0.0, DEVIATION, shape)
        variable.assign(values)
