"""Moves scales between weights without changing the function: from normalizations, and from queries to keys. D width.

An integer tensor has one scale for all its channels. After a layer normalization a few channels may be far wider than
the rest, which leaves the others with few of the 256 levels. Most of the difference comes from gamma of the
normalization, which `fold_norms` removes.
"""

import numpy as np

from keras_vit.export.tflite.graph_rewrite import encoder_blocks, export_copy


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
        for norm, dense in ((block.norm_attention, block.attention.qkv), (block.norm_mlp, block.mlp.hidden)):
            gamma, beta, kernel = (x.numpy().astype("float64") for x in (norm.gamma, norm.beta, dense.kernel))
            dense.bias.assign(dense.bias.numpy() + beta @ kernel)
            dense.kernel.assign(gamma[:, None] * kernel)
            norm.gamma.assign(np.ones_like(gamma))
            norm.beta.assign(np.zeros_like(beta))
        for scale, dense in ((block.scale_attention, block.attention.out), (block.scale_mlp, block.mlp.out)):
            if scale is not None:
                gamma = scale.gamma.numpy().astype("float64")
                dense.kernel.assign(dense.kernel.numpy() * gamma)
                dense.bias.assign(dense.bias.numpy() * gamma)
                scale.gamma.assign(np.ones_like(gamma))


def balance_attention(model, ranges):
    """Gives each channel of the queries the range of the same channel of the keys, in place.

    The channel of the queries is multiplied by a factor by which that of the keys is divided: in exact arithmetic
    nothing changes. The same between values and projection brought nothing on a trained network (docs/results.md).

    Args:
        model: A `folded_copy`; blocks with normalized queries and keys, or with relative positions, which queries are
            multiplied with too, keep theirs.
        ranges: Largest absolute values of queries, keys and values, (3 D,) per block; see
            `calibration.attention_ranges`.
    """
    for block, of_block in zip(encoder_blocks(model), ranges, strict=True):
        layer = block.attention
        if layer.query_norm is not None or layer.relative is not None:
            continue
        query, key, _ = np.split(np.maximum(of_block.astype("float64"), 1e-6), 3)
        factor = np.sqrt(key / query)
        factors = np.concatenate([factor, 1 / factor, np.ones_like(factor)])
        for weight in (layer.qkv.kernel, layer.qkv.bias):
            weight.assign(weight.numpy() * factors)


def fold_pixels(model):
    """Folds mean and deviation of the pixels into the patch embedding, in place, if it reads the pixels themselves."""
    if getattr(model, "patch_embedding", None) is None or model.backbone:
        return
    projection = model.patch_embedding.projection
    kernel = projection.kernel.numpy().astype("float64")  # (P, P, 3, D)
    kernel /= np.array(model.preprocessing.std)[:, None]
    mean = np.einsum("pqcd,c->d", kernel, np.array(model.preprocessing.mean))
    projection.bias.assign(projection.bias.numpy() - mean)
    projection.kernel.assign(kernel / 255)
    model.takes_pixels = True
