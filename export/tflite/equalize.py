"""Equalizes channel ranges: moves scales of layer normalizations into the next kernels without changing the function.

An integer tensor has one scale for all its channels. After a layer normalization a few channels may be far wider than
the rest, which leaves the others with few of the 256 levels. RepQ-ViT (arXiv 2212.08254, section 4.2) divides each
channel by its own range and multiplies the rows of the next kernel by it; in exact arithmetic nothing changes. Most of
the difference comes from gamma of the normalization, which `fold_norms` removes. `equalize_channels` divides only the
outliers that remain: each costs a multiplication, and a kernel whose rows differ more is rounded more coarsely.
"""

import numpy as np

from keras_vit.export.tflite.graph_rewrite import encoder_blocks, export_copy

MAX_RATIO = 8.0  # largest allowed range of a channel, relative to the median channel


def folded_copy(model):
    """An `export_copy` after `fold_norms`."""
    copy = export_copy(model)
    fold_norms(copy)
    return copy


def fold_norms(model):
    """Folds gamma and beta of the blocks' normalizations into the next kernel and bias, in place.

    Layer scales are folded into the kernels before them. The converter then writes four operations less per block.
    """
    for block in encoder_blocks(model):
        for norm, dense in _pairs(block):
            width = norm.gamma.shape[0]
            _replace(norm, dense, np.ones(width), np.zeros(width))
        for scale, dense in ((block.scale_attention, block.attention.out), (block.scale_mlp, block.mlp.out)):
            if scale is not None:
                gamma = scale.gamma.numpy().astype("float64")
                dense.kernel.assign(dense.kernel.numpy() * gamma)
                dense.bias.assign(dense.bias.numpy() * gamma)
                scale.gamma.assign(np.ones_like(gamma))


def equalize_channels(model, lows, highs):
    """Narrows the channels after each normalization that exceed `MAX_RATIO`, in place.

    Args:
        model: A `folded_copy`.
        lows, highs: Smallest and largest value of each channel, (D,) arrays, two per block in the order of the
            normalizations; see `calibration.channel_ranges`.
    """
    pairs = [pair for block in encoder_blocks(model) for pair in _pairs(block)]
    for (norm, dense), low, high in zip(pairs, lows, highs, strict=True):
        ranges = np.maximum(np.abs(low), np.abs(high)).astype("float64")
        limit = MAX_RATIO * np.median(ranges) or np.inf
        factor = np.minimum(1.0, limit / np.maximum(ranges, 1e-12))
        _replace(norm, dense, norm.gamma.numpy() * factor, norm.beta.numpy() * factor)


def balance_attention(model, ranges):
    """Gives each channel of the queries the range of the same channel of the keys, in place.

    The channel of the queries is multiplied by a factor by which that of the keys is divided: in exact arithmetic
    nothing changes. The same between values and projection brought nothing on a trained network (docs/results.md).

    Args:
        model: A `folded_copy`; blocks with normalized queries and keys keep them.
        ranges: Largest absolute values of queries, keys and values, (3 D,) per block; see
            `calibration.attention_ranges`.
    """
    for block, of_block in zip(encoder_blocks(model), ranges, strict=True):
        layer = block.attention
        if layer.query_norm is not None:
            continue
        query, key, _ = np.split(np.maximum(of_block.astype("float64"), 1e-6), 3)
        factor = np.sqrt(key / query)
        factors = np.concatenate([factor, 1 / factor, np.ones_like(factor)])
        for weight in (layer.qkv.kernel, layer.qkv.bias):
            weight.assign(weight.numpy() * factors)


def _pairs(block):
    return (block.norm_attention, block.attention.qkv), (block.norm_mlp, block.mlp.hidden)


def _replace(norm, dense, gamma, beta):
    """Sets gamma and beta of the normalization and compensates in the next layer."""
    old_gamma, old_beta = (weight.numpy().astype("float64") for weight in (norm.gamma, norm.beta))
    kernel, bias = (weight.numpy().astype("float64") for weight in (dense.kernel, dense.bias))
    # old = x g + b, new = x g' + b':  old = new g / g' + (b - b' g / g')
    ratio = np.divide(old_gamma, gamma, out=np.zeros_like(gamma), where=gamma != 0)
    dense.bias.assign(bias + (old_beta - beta * ratio) @ kernel)
    dense.kernel.assign(ratio[:, None] * kernel)
    norm.gamma.assign(gamma)
    norm.beta.assign(beta)
