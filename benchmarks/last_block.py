"""Largest differences between the last block for the tokens that are read and for all tokens: outputs and gradients.

Requires keras_vit[tensorflow]
Command: python benchmarks/last_block.py
S/16 at 224 pixels, two images, random weights, a training step's forward and backward pass in float32. Each difference
is divided by the largest value of its array; gradients that are zero by symmetry (biases of keys) by 0.03 of the
largest of all gradients. `tests/models/test_selected_tokens.py` tests small models.
"""

import keras
import numpy as np
import tensorflow as tf

import keras_vit

VARIANTS = {
    "class token": {},
    "class and distillation token": {"distillation": True},
    "registers, LayerScale": {"register_tokens": 4, "layer_scale": 0.1},
    "QK normalization, normalization after pooling": {"qk_norm": True, "norm_after_pooling": True},
    "positions in every layer": {"position_placement": "every_layer"},
    'remat="block"': {"remat": "block"},
}


def logits(model, images, read):
    tokens = model.encode(model.embed(images), training=True, read=read)
    if model.head_distillation is not None:
        return (model.head(tokens[:, 0]) + model.head_distillation(tokens[:, 1])) / 2
    return model.head(model.pool(tokens))


def outputs_and_gradients(model, images, read, xla):
    @tf.function(jit_compile=xla)
    def run():
        with tf.GradientTape() as tape:
            output = logits(model, tf.constant(images), read)
            loss = tf.reduce_sum(tf.sin(output))
        return [output, *tape.gradient(loss, [weight.value for weight in model.trainable_weights])]

    return [array.numpy() for array in run()]


def largest_differences(options, images, xla):
    """Of the outputs, and of all gradients."""
    keras.utils.set_random_seed(0)
    model = keras_vit.ViT_S16(num_classes=10, **options)
    model.head.kernel.assign(np.random.default_rng(1).normal(size=model.head.kernel.shape, scale=0.05))
    read = 2 if model.head_distillation is not None else 1
    pairs = list(zip(*(outputs_and_gradients(model, images, length, xla) for length in (read, None))))
    largest = max(np.abs(complete).max() for _, complete in pairs[1:])
    scales = [max(np.abs(complete).max(), 0.03 * largest) for _, complete in pairs]
    found = [np.abs(one - other).max() / scale for (one, other), scale in zip(pairs, scales)]
    return found[0], max(found[1:])


def main():
    images = np.random.default_rng(0).uniform(-1, 1, (2, 224, 224, 3)).astype("float32")
    print("| variant | compiled | outputs | gradients |\n|---|---|---|---|")
    for name, options in VARIANTS.items():
        for xla in (False, True):
            output, gradient = largest_differences(options, images, xla)
            print(f"| {name} | {'XLA' if xla else 'graph'} | {output:.1e} | {gradient:.1e} |", flush=True)


if __name__ == "__main__":
    main()
