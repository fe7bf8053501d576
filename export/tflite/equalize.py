"""The copy of a model that files are converted from: weights take over scales, and tokens are rotated. D width.

An integer tensor has one scale for all its channels. A few channels of a trained ViT are many times as wide as the rest
("Massive Activations in Large Language Models", arXiv 2402.17762, section 5), which leaves the others with few of the
256 levels. After a layer normalization, most of the difference comes from its gamma, which `fold_norms` removes;
`rotate_tokens` does it between the blocks, `balance_attention` between queries and keys. None of them changes the
function.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import tensorflow as tf

from keras_vit.export.tflite.arithmetic import FLOAT, HALF, INTEGERS, layer_norm
from keras_vit.export.tflite.encoder import attention_ranges, encoder_blocks, is_rewritten
from keras_vit.export.tflite.request import DYNAMIC, FLOATS, STATIC, Request
from keras_vit.export.tflite.signatures import measure_square_sums
from keras_vit.layers.pooling import AttentionPooling, TokenAndAveragePooling
from keras_vit.models.copying import float32_copy


def prepared_copies(request: Request, log: Callable[[str], object] = lambda text: None) -> Iterator[tuple]:
    """Yields (copy, form of its arithmetic, formats) for each kind of the requested formats.

    It is one copy, which is changed for the next formats; the function that it computes stays.
    """
    copy = folded_copy(request.model)
    floats, dynamic, static = ([name for name in kind if name in request.formats] for kind in (FLOATS, DYNAMIC, STATIC))
    if floats:
        yield copy, HALF, floats  # GPUs compute both in half precision
    if request.equalize and (dynamic or static):
        rotate_tokens(copy)
    if dynamic:
        yield copy, FLOAT, dynamic
    if static:
        log("Calibrating the ranges of activations")
    if request.equalize and static and encoder_blocks(copy):
        balance_attention(copy, attention_ranges(copy, request.calibration))
    if others := [name for name in static if name != "int8"]:
        yield copy, FLOAT, others
    if "int8" in static:
        fold_pixels(copy)
        measure_square_sums(copy, request.signatures[0], request.calibration)
        yield copy, INTEGERS, ["int8"]


def folded_copy(model):
    """A float32 copy after `fold_norms`, whose queries have the factor 1 / sqrt(d) of attention."""
    copy = float32_copy(model)
    if is_rewritten(copy) and (initial := copy.encoder.initial_norm):
        copy.encoder.initial_norm = partial(layer_norm, initial)  # `encode` applies it
    for block in encoder_blocks(copy):
        _scale_queries(block.attention)
    fold_norms(copy)
    return copy


def _scale_queries(attention):
    width = attention.out.kernel.shape[0]
    factor = (width // attention.num_heads) ** -0.5
    if attention.query_norm is not None:
        weights = (attention.query_norm.gamma, attention.query_norm.beta)
        for weight in weights:
            weight.assign(weight * factor)
    else:
        for weight in (attention.qkv.kernel, attention.qkv.bias):
            query, rest = np.split(weight.numpy(), [width], axis=-1)
            weight.assign(np.concatenate([query * factor, rest], axis=-1))


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
    """Centers keys and values, and evens out the ranges of queries, keys and values, in place.

    In exact arithmetic nothing changes. A constant of the keys adds the same to all logits of a query, which the
    softmax cancels, and one of the values, whose weights add up to 1, goes to the bias of the projection. Rounded
    weights do not add up to 1; the mean of the values is the constant that makes this matter least. A channel of
    the queries is multiplied by a factor by which that of the keys is divided. All values get the range of the widest
    key, since the three are one tensor, by factors that the projection takes back.

    Args:
        model: A `folded_copy`; blocks with normalized queries and keys, or with relative positions, which queries are
            multiplied with too, keep theirs.
        ranges: Smallest, largest and mean values of queries, keys and values, (3, 3 D) per block; see
            `attention_ranges`.
    """
    for block, (low, high, mean) in zip(encoder_blocks(model), np.asarray(ranges, "float64"), strict=True):
        layer = block.attention
        if layer.query_norm is not None or layer.relative is not None:
            continue
        _, key_center, _ = np.split((low + high) / 2, 3)
        query, largest_key, _ = np.split(np.maximum(-low, high), 3)
        _, key, _ = np.split((high - low) / 2, 3)
        value_center = np.split(mean, 3)[2]
        value = np.split(np.maximum(mean - low, high - mean), 3)[2]
        if layer.rotary is not None:  # keys that turn have no constant; the two channels of a pair are mixed
            key_center, key = np.zeros_like(key), largest_key
            query, key = (_of_pairs(x, layer.num_heads) for x in (query, key))
        query, key, value = (np.maximum(of_channels, 1e-6) for of_channels in (query, key, value))
        factor = np.sqrt(key / query)
        value_factor = (query * factor).max() / value
        factors = np.concatenate([factor, 1 / factor, value_factor])
        projection = layer.out.kernel.numpy().astype("float64")
        constants = np.concatenate([np.zeros_like(query), key_center, value_center])
        layer.qkv.bias.assign((layer.qkv.bias.numpy() - constants) * factors)
        layer.qkv.kernel.assign(layer.qkv.kernel.numpy() * factors)
        layer.out.bias.assign(layer.out.bias.numpy() + value_center @ projection)
        layer.out.kernel.assign(projection / value_factor[:, None])


def _of_pairs(ranges, num_heads):
    """The larger range of the two channels that `RotaryPositions` rotates together, (D,), for both."""
    pairs = ranges.reshape(num_heads, 2, -1)  # (K, 2, d / 2)
    return np.broadcast_to(pairs.max(axis=1, keepdims=True), pairs.shape).reshape(-1)  # (D,)


def fold_pixels(model):
    """Folds mean and deviation of the pixels into the patch embedding, in place, if it reads the pixels themselves."""
    if not is_rewritten(model) or model.backbone:
        return
    projection = model.patch_embedding.projection
    kernel = projection.kernel.numpy().astype("float64")  # (P, P, 3, D)
    kernel /= np.array(model.preprocessing.std)[:, None]
    mean = np.einsum("pqcd,c->d", kernel, np.array(model.preprocessing.mean))
    projection.bias.assign(projection.bias.numpy() - mean)
    projection.kernel.assign(kernel / 255)
    model.takes_pixels = True


def rotate_tokens(model):
    """Centers and rotates the tokens between the blocks, in place; `layer_norm` rotates the last ones back.

    All that writes to the tokens and all that reads them is linear, after a layer normalization whose gamma was folded:
    its mean is subtracted once and for all by the weights that write ("SliceGPT", arXiv 2401.15024), and what remains,
    a division by the norm, is the same after a rotation ("QuaRot", arXiv 2404.00456). Neither costs an operation in the
    blocks, which compute no means and differences any more.

    Models that have other blocks, or read their tokens without a normalization, keep theirs.
    """
    last = model.encoder.norm or model.pooled_norm if encoder_blocks(model) else None
    if last is None:
        return
    if last is model.pooled_norm and isinstance(model.pooling, AttentionPooling | TokenAndAveragePooling):
        return  # the mean of a token matters
    projection = model.patch_embedding.projection
    width = projection.kernel.shape[-1]
    rotation = orthogonal(width)
    basis = rotation - rotation.mean(axis=0)  # subtracts the mean of a token, then rotates it
    if model.encoder.initial_norm is None:
        _rotate_embedding(model, projection, basis)
    else:  # its gamma lies between the embeddings and the rotation
        initial_norm, matrix = model.encoder.initial_norm, basis.astype("float32")
        model.encoder.initial_norm = lambda tokens: tf.matmul(initial_norm(tokens), matrix)
    zeros = np.zeros((1, model.prefix_tokens + model.grid[0] * model.grid[1], width), "float32")
    between = [np.asarray(layer(zeros)) @ basis for layer in model.block_positions]
    model.block_positions = [partial(tf.add, table.astype("float32")) for table in between]
    for block in encoder_blocks(model):
        for dense in (block.attention.out, block.mlp.out):
            _multiply_outputs(dense, basis)
        for dense in (block.attention.qkv, block.mlp.hidden):
            dense.kernel.assign(rotation.T @ dense.kernel.numpy().astype("float64"))
        block.norm_attention.centered = block.norm_mlp.centered = True
    last.centered = True
    last.rotate_back = (rotation.T * last.gamma.numpy()).astype("float32")  # with its gamma, in one product


def orthogonal(width: int):
    """A matrix (D, D) without large values: a channel becomes a wave over all channels.

    The discrete Hartley transform exists for every width, and no value exceeds sqrt(2 / D). Random signs keep channels
    that are alike from adding up in one place.
    """
    angles = 2 * np.pi * np.outer(np.arange(width), np.arange(width)) / width
    signs = np.random.default_rng(0).choice([-1.0, 1.0], width)
    return signs[:, None] * (np.cos(angles) + np.sin(angles)) / np.sqrt(width)


def _rotate_embedding(model, projection, basis):
    """Rotates the patch embeddings and what is added to them: class token, registers and positions."""
    grid, width = model.grid, len(basis)
    added = np.asarray(model.add_tokens(np.zeros((1, grid[0] * grid[1], width), "float32")))  # (1, N, D)
    model.added_tokens = (added.astype("float64") @ basis).astype("float32")
    _multiply_outputs(projection, basis)


def _multiply_outputs(layer, basis):
    for weight in (layer.kernel, layer.bias):
        weight.assign(weight.numpy().astype("float64") @ basis)
