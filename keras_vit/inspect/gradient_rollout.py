"""What speaks for a class: attention weighted by gradients. B batch, H W pixels, K heads, N tokens, C classes."""

import keras
import numpy as np

from keras_vit.inspect.rollout import over_images, reads_patches, shares


def gradient_rollout(model, images, classes=None) -> np.ndarray:
    """Relevance of the patches for a class ("Generic Attention-model Explainability", arXiv 2103.15679, section 3).

    In each layer attention is multiplied by the gradient of the class's logit with respect to it, what is negative
    dropped and the heads averaged, A; from R = I, R becomes R + A R. Attention rollout is the same for every class;
    this is not.

    Args:
        model: A `VisionTransformer` with a head, on the TensorFlow backend.
        images: (B, H, W, 3) float, as the model takes them.
        classes: (B,) integers; by default those that the model finds most likely.

    Returns:
        (B, H, W) float32 in [0, 1], bilinearly resized from the patch grid; all 0 where nothing speaks for the class.

    Raises:
        ValueError: Another backend, no head, no pooling, axial blocks, or classes that the model does not have.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Gradients need the TensorFlow backend. Received: {keras.backend.backend()!r}")
    if not model.num_classes or model.head_distillation is not None:
        raise ValueError(f"{model.name} needs one head: model.with_head(num_classes) gives it one.")
    if model.config.pooling == "none":
        raise ValueError(f"{model.name} has logits for every token (pooling='none'), not for the image: no one class.")
    if model.config.axial:
        raise ValueError(
            f"{model.name} attends along rows, then columns (axial=True): it has no attention of all tokens to take "
            "gradients of. attention_rollout takes it."
        )
    weights, gradients = _attention_and_gradients(model, images, classes)
    joint = np.eye(weights[0].shape[-1])[None]
    for attention, gradient in zip(weights, gradients):
        joint = joint + np.maximum(attention * gradient, 0).mean(axis=1) @ joint  # (B, N, N)
    return over_images(shares(joint - np.eye(joint.shape[-1]), model.prefix_tokens, reads_patches(model)), model)


def _attention_and_gradients(model, images, classes):
    """Of each block, (B, K, N, N) float64 arrays."""
    import tensorflow as tf

    weights = []

    def run(block, tokens):
        tokens, attention = block(tokens, return_attention=True)
        weights.append(attention)
        return tokens

    with tf.GradientTape() as tape:
        tokens = model.add_tokens(model.embed(tf.convert_to_tensor(images)))
        tape.watch(tokens)  # also where nothing is trainable
        tokens = model.apply_blocks(tokens, run)
        encoded = tokens if model.encoder.norm is None else model.encoder.norm(tokens)
        logits = model.head(model.pool(encoded))  # (B, C)
        classes = tf.argmax(logits, axis=-1) if classes is None else _checked(classes, logits.shape)
        score = tf.reduce_sum(tf.gather(logits, classes, axis=1, batch_dims=1))
    gradients = tape.gradient(score, weights)
    return [[np.asarray(tf.cast(x, "float64")) for x in side] for side in (weights, gradients)]


def _checked(classes, shape):
    classes = np.asarray(classes)
    if classes.shape != shape[:1] or classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= shape[1]:
        raise ValueError(f"`classes` must be {shape[0]} integers from 0 to {shape[1] - 1}. Received: {classes}")
    return classes
