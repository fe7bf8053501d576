"""Attention of trained models: rollout, also by gradients, and distances. B batch, H W pixels, K heads, N tokens."""

import keras
import numpy as np
from keras import ops

from keras_vit.inspect.representation import in_batches
from keras_vit.models.outer_model import apply, vit_inside


def rollout(attention, prefix_tokens: int = 1, patch_share: float = 0.0):
    """Multiplies attention through the layers ("Quantifying Attention Flow in Transformers", arXiv 2005.00928).

    As described by the ViT paper's author (appendix D.8; google-research/vision_transformer, issue 18): the heads are
    averaged, the identity is added for the residual connection, rows are normalized, and the matrices are multiplied.
    Of the product, the rows that the head reads are computed, from the last layer to the first: O(depth * N^2).

    Args:
        attention: (B, depth, K, N, N), NumPy array or tensor; rows sum to 1.
        prefix_tokens: Number of tokens before the patches, the class token first if there is one.
        patch_share: Share of the head's input that is pooled from the patches, in [0, 1]: the mean of their rows has
            this weight, the class token's row the rest. Without prefix tokens it is 1. See `patch_share`.

    Returns:
        (B, N - prefix_tokens) tensor of the dtype of `attention`: the contribution of each patch, with a maximum of 1
        for each image.
    """
    row = ops.convert_to_tensor(_read(attention.shape[-1], prefix_tokens, patch_share), attention.dtype)  # (1, N)
    for layer in reversed(range(attention.shape[1])):
        weights = ops.mean(attention[:, layer], axis=1)  # (B, N, N)
        row = row / (1 + ops.sum(weights, axis=-1))  # (B, N)
        row = row + ops.matmul(row[:, None], weights)[:, 0]
    return _scale(row[:, prefix_tokens:])


def _read(length: int, prefix_tokens: int, patch_share: float) -> np.ndarray:
    """The weight of each token in the head's input, (1, N) float64: only its row of the products is computed."""
    share = patch_share if prefix_tokens else 1.0
    read = np.zeros((1, length))
    read[:, prefix_tokens:] = share / (length - prefix_tokens)
    read[:, 0] += 1 - share
    return read


def _scale(patches):
    """(B, N - prefix_tokens) with a maximum of 1 for each image."""
    return patches / ops.maximum(ops.max(patches, axis=-1, keepdims=True), 1e-30)


def attention_rollout(model, images) -> np.ndarray:
    """Attention rollout of a VisionTransformer over images.

    Args:
        model: A `VisionTransformer`, or a Sequential or functional model around one.
        images: (B, H, W, 3) float, as the model takes them.

    Returns:
        (B, H, W) float32 in [0, 1], bilinearly resized from the patch grid; H, W of the images of the
        `VisionTransformer`.
    """
    model, before, _ = vit_inside(model)
    images = apply(before, images)
    attention = ops.cast(model.attention_maps(images), "float32")
    patches = rollout(attention, model.prefix_tokens, patch_share(model))
    return ops.convert_to_numpy(resize_to_images(patches, model))


def patch_share(model) -> float:
    """Share of the head's input that is pooled from the patches: 0 for a class token, 1 for a mean, 0.5 for both."""
    if model.config.pooling == "token_and_gap":
        return 0.5
    return float(model.config.pooling in ("gap", "map") or not model.config.class_token)


def resize_to_images(patches, model):
    """Values of the patches, (B, h*w), bilinearly resized to the model's images: (B, H, W) float32 tensor."""
    grid = ops.reshape(ops.cast(patches, "float32"), (-1, *model.grid, 1))  # (B, h, w, 1)
    return ops.image.resize(grid, model.image_size, data_format="channels_last")[..., 0]


def mean_attention_distance(attention, grid, patch_size, prefix_tokens=1) -> np.ndarray:
    """Mean distance in pixels between a patch and the patches that it attends to, for each layer and head.

    As computed by the paper's author (google-research/vision_transformer, issue 162): the rows and columns of tokens
    that are not patches are dropped without renormalizing, so a head that attends only to the class token has
    distance 0. Euclidean distances are weighted by attention, summed over keys, averaged over queries and images.

    Args:
        attention: (B, depth, K, N, N) with rows that sum to 1.
        grid: (h, w).
        patch_size: Pixels between neighboring patches, or (vertical, horizontal) pixels.
        prefix_tokens: Number of tokens before the patches.

    Returns:
        (depth, K) float64, pixels.

    Raises:
        ValueError: N is not `prefix_tokens` + h * w.
    """
    attention = np.asarray(attention, "float64")
    if attention.ndim != 5 or attention.shape[-1] != prefix_tokens + np.prod(grid):
        raise ValueError(
            f"`attention` must have shape (B, depth, K, N, N) with N = {prefix_tokens} + {grid[0]} * {grid[1]}. "
            f"Received: {attention.shape}"
        )
    positions = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1).reshape(-1, 2)  # (h*w, 2)
    offsets = (positions[:, None] - positions[None]) * np.broadcast_to(patch_size, 2)  # (h*w, h*w, 2)
    distances = np.sqrt(np.square(offsets).sum(axis=-1))  # (h*w, h*w)
    patches = attention[..., prefix_tokens:, prefix_tokens:]  # (B, depth, K, h*w, h*w)
    return np.einsum("blkij,ij->lk", patches, distances) / (len(attention) * len(positions))


def attention_distance(model, images, batch_size: int = 16) -> np.ndarray:
    """`mean_attention_distance` of a model over images; the paper used 128 images of 224 pixels.

    Args:
        model: A `VisionTransformer`, or a model around one. For a hybrid, a patch is the part of the image of one
            token.
        images: (n, H, W, 3) float, as the model takes them.
        batch_size: Number of images at a time; each needs memory for depth * K * N * N numbers.

    Returns:
        (depth, K) float64, pixels.
    """
    model, before, _ = vit_inside(model)
    side = [pixels / patches for pixels, patches in zip(model.image_size, model.grid)]
    total = np.zeros(())
    for batch in in_batches(images, batch_size):
        attention = ops.convert_to_numpy(ops.cast(model.attention_maps(apply(before, batch)), "float32"))
        total = total + len(batch) * mean_attention_distance(attention, model.grid, side, model.prefix_tokens)
    return total / len(images)


def quantize_rows(weights) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes each row to multiples of 1/255 of its maximum: weights = levels * steps, with an error of half a step.

    A row of attention sums to 1: with one step for all rows, rows of uniform attention would become coarse.

    Args:
        weights: (..., N), finite and nonnegative.

    Returns:
        Levels (..., N) uint8 and steps (...,) float32; a row of zeros has step 0.

    Raises:
        ValueError: A weight is negative, infinite or NaN.
    """
    weights = np.asarray(weights, "float32")
    if not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        raise ValueError(
            "Expected finite, nonnegative weights. Received: weights "
            f"from {weights.min(initial=0)} to {weights.max(initial=0)}"
        )
    steps = weights.max(axis=-1) / np.float32(255)  # (...)
    levels = np.rint(weights / np.where(steps, steps, 1)[..., None])  # (..., N)
    return np.minimum(levels, 255).astype("uint8"), steps


def gradient_rollout(model, images, classes=None) -> np.ndarray:
    """Relevance of the patches for a class ("Generic Attention-model Explainability", arXiv 2103.15679, section 3).

    In each layer, A is attention times the gradient of the class's logit with respect to it, clipped at 0 and averaged
    over heads. Starting from R = I, each layer adds A R to R. Unlike attention rollout, R depends on the class.

    Args:
        model: A `VisionTransformer` with a head, or a model around one, of which the classes then are; on the
            TensorFlow backend.
        images: (B, H, W, 3) float, as the model takes them.
        classes: (B,) integers; by default the most likely class of each image.

    Returns:
        (B, H, W) float32 in [0, 1], bilinearly resized from the patch grid; all 0 if no patch contributes to the class.

    Raises:
        ValueError: The backend is not TensorFlow; the model has no head, two heads, a projection as head, no pooling or
            axial blocks; or it lacks the classes.
    """
    model, before, after = vit_inside(model)
    if reason := gradient_rollout_undefined(model, bool(after)):
        raise ValueError(f"gradient_rollout is not defined for {model.name}: {reason}. Use attention_rollout.")
    images = apply(before, images)
    layers = _attention_and_gradients(model, images, classes, after)
    read = _read(layers[0][0].shape[-1], model.prefix_tokens, patch_share(model))
    added = np.zeros_like(read)  # the row of R - I that is read, from the last layer to the first: (B, N)
    while layers:
        attention, gradient = layers.pop()  # frees it: (B, K, N, N) each may take a tenth of a gigabyte
        relevance = ops.mean(ops.relu(attention * gradient), axis=1)  # (B, N, N)
        added = added + np.matmul((read + added)[:, None], ops.convert_to_numpy(relevance))[:, 0]
    return ops.convert_to_numpy(resize_to_images(_scale(added[:, model.prefix_tokens :]), model))


def gradient_rollout_undefined(vit, has_head: bool = False) -> str:
    """Why `gradient_rollout` is not defined for a model, perhaps with a head around it; "" if it is."""
    reasons = (
        (not (vit.num_classes or has_head), "the model has no head"),
        (vit.config.projection, "the head is a projection to the space that images share with texts"),
        (vit.head_distillation is not None, "the model has two heads"),
        (vit.config.pooling == "none", "the model predicts for every token"),
        (vit.config.axial, "axial attention is a product of two factors, for which it is not defined"),
        (keras.backend.backend() != "tensorflow", "it requires the TensorFlow backend"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _attention_and_gradients(model, images, classes, after):
    """Attention weights and their gradients, (B, K, N, N) float32 tensors each, of each block."""
    import tensorflow as tf

    weights = []

    def run(block, tokens):
        tokens, attention = block(tokens, return_attention=True)
        weights.append(attention)
        return tokens

    with tf.GradientTape() as tape:
        tokens = model.add_tokens(model.embed(tf.convert_to_tensor(images)))
        tape.watch(tokens)  # also if nothing is trainable
        tokens = model.apply_blocks(tokens, run)
        encoded = tokens if model.encoder.norm is None else model.encoder.norm(tokens)
        features = model.pool(encoded)
        logits = apply(after, model.head(features) if model.head else features)  # (B, C)
        classes = tf.argmax(logits, axis=-1) if classes is None else _check_classes(classes, logits.shape)
        score = tf.reduce_sum(tf.gather(logits, classes, axis=1, batch_dims=1))
    gradients = tape.gradient(score, weights)
    return [tuple(tf.cast(x, "float32") for x in pair) for pair in zip(weights, gradients)]


def _check_classes(classes, shape):
    classes = np.asarray(classes)
    if classes.shape != shape[:1] or classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= shape[1]:
        raise ValueError(f"`classes` must be {shape[0]} integers from 0 to {shape[1] - 1}. Received: {classes}")
    return classes
