"""Attention rollout weighted by gradients: which patches contribute to a class.

B batch, H W pixels, K heads, N tokens, C classes.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.inspect.attention import patch_contributions, patch_share, resize_to_images


def gradient_rollout(model, images, classes=None) -> np.ndarray:
    """Relevance of the patches for a class ("Generic Attention-model Explainability", arXiv 2103.15679, section 3).

    In each layer, A is attention times the gradient of the class's logit with respect to it, clipped at 0 and averaged
    over heads. Starting from R = I, each layer adds A R to R. Unlike attention rollout, R depends on the class.

    Args:
        model: A `VisionTransformer` with a head, on the TensorFlow backend.
        images: (B, H, W, 3) float, as the model takes them.
        classes: (B,) integers; by default the most likely class of each image.

    Returns:
        (B, H, W) float32 in [0, 1], bilinearly resized from the patch grid; all 0 if no patch contributes to the class.

    Raises:
        ValueError: The backend is not TensorFlow; the model has no head, two heads, a projection as head, no pooling or
            axial blocks; or it lacks the classes.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Gradients require the TensorFlow backend. Received: {keras.backend.backend()!r}")
    if not model.num_classes or model.head_distillation is not None:
        raise ValueError(f"Expected a model with one head, see model.with_head(num_classes). Received: {model.name}")
    if model.config.projection:
        raise ValueError(f"The head of {model.name} projects to the space of texts: it has no classes.")
    if model.config.pooling == "none":
        raise ValueError(f"{model.name} has logits for every token (pooling='none'), not one class per image.")
    if model.config.axial:
        raise ValueError(
            f"{model.name} attends along rows, then columns (axial=True): it has no attention between all tokens. Use "
            "attention_rollout."
        )
    weights, gradients = _attention_and_gradients(model, images, classes)
    joint = np.eye(weights[0].shape[-1])[None]
    for attention, gradient in zip(weights, gradients):
        joint = joint + np.maximum(attention * gradient, 0).mean(axis=1) @ joint  # (B, N, N)
    patches = patch_contributions(joint - np.eye(joint.shape[-1]), model.prefix_tokens, patch_share(model))
    return ops.convert_to_numpy(resize_to_images(patches, model))


def _attention_and_gradients(model, images, classes):
    """Attention weights and their gradients, a list of (B, K, N, N) float64 arrays each, one per block."""
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
        logits = model.head(model.pool(encoded))  # (B, C)
        classes = tf.argmax(logits, axis=-1) if classes is None else _check_classes(classes, logits.shape)
        score = tf.reduce_sum(tf.gather(logits, classes, axis=1, batch_dims=1))
    gradients = tape.gradient(score, weights)
    return [[np.asarray(tf.cast(x, "float64")) for x in side] for side in (weights, gradients)]


def _check_classes(classes, shape):
    classes = np.asarray(classes)
    if classes.shape != shape[:1] or classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= shape[1]:
        raise ValueError(f"`classes` must be {shape[0]} integers from 0 to {shape[1] - 1}. Received: {classes}")
    return classes
