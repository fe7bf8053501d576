"""Moves scales and shifts of layer normalizations into the layers behind them: the function stays, ranges even out.

Integers have one range for all channels of a tensor. After a layer normalization some channels may be far wider than
the others, and these get few of the 256 steps. "RepQ-ViT" (arXiv 2212.08254, section 4.2) divides every channel by its
own range and multiplies the rows of the next kernel by it; in exact arithmetic nothing changes. Most of the difference
is the normalization's own scale, which `fold_norms` takes out. Where outliers are left, `even_out` divides these alone:
it costs a multiplication, and rows of a kernel that differ more are rounded more.
"""

import numpy as np

from keras_vit.export.tflite.device_form import device_copy, plain_blocks

WIDEST = 2.0  # times the median channel


def folded_copy(model):
    """A `device_copy` after `fold_norms`."""
    copy = device_copy(model)
    fold_norms(copy)
    return copy


def fold_norms(model):
    """Leaves the blocks' normalizations without scale and shift: the next kernel and bias have them. In place.

    Layer scales go into the kernels before them. Converters then drop four operations a block.
    """
    for block in plain_blocks(model):
        for norm, dense in _pairs(block):
            width = norm.gamma.shape[0]
            _move(norm, dense, np.ones(width), np.zeros(width))
        for scale, dense in ((block.scale_attention, block.attention.out), (block.scale_mlp, block.mlp.out)):
            if scale is not None:
                gamma = scale.gamma.numpy().astype("float64")
                dense.kernel.assign(dense.kernel.numpy() * gamma)
                dense.bias.assign(dense.bias.numpy() * gamma)
                scale.gamma.assign(np.ones_like(gamma))


def even_out(model, lows, highs):
    """Narrows the channels behind each normalization that are far wider than the others. In place.

    Args:
        model: A `folded_copy`.
        lows, highs: (D,) arrays, what each channel's values lie between, for both normalizations of each block in their
            order, see `calibration.channel_ranges`.
    """
    pairs = [pair for block in plain_blocks(model) for pair in _pairs(block)]
    for (norm, dense), low, high in zip(pairs, lows, highs, strict=True):
        reach = np.maximum(np.abs(low), np.abs(high)).astype("float64")
        limit = WIDEST * np.median(reach) or np.inf
        factor = np.minimum(1.0, limit / np.maximum(reach, 1e-12))
        _move(norm, dense, norm.gamma.numpy() * factor, norm.beta.numpy() * factor)


def _pairs(block):
    return (block.norm_attention, block.attention.qkv), (block.norm_mlp, block.mlp.hidden)


def _move(norm, dense, gamma, beta):
    """Gives the normalization another scale and shift and the next layer what undoes the change."""
    old_gamma, old_beta = (weight.numpy().astype("float64") for weight in (norm.gamma, norm.beta))
    kernel, bias = (weight.numpy().astype("float64") for weight in (dense.kernel, dense.bias))
    # old = x g + b, new = x g' + b':  old = new g / g' + (b - b' g / g')
    ratio = np.divide(old_gamma, gamma, out=np.zeros_like(gamma), where=gamma != 0)
    dense.bias.assign(bias + (old_beta - beta * ratio) @ kernel)
    dense.kernel.assign(ratio[:, None] * kernel)
    norm.gamma.assign(gamma)
    norm.beta.assign(beta)
