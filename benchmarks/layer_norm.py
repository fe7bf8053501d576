"""LayerNorm of keras_vit compared with Keras's: time of a forward and backward pass on this machine, and error.

Command: python benchmarks/layer_norm.py
"""

import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from keras_vit.layers import LayerNorm

SHAPES = [(64, 17, 64), (16, 197, 384), (8, 197, 768)]
ROUNDS, CALLS = 15, 10


def compiled_step(layer, x):
    variable = tf.Variable(x)
    weights = [variable, *(weight.value for weight in layer.trainable_weights)]
    # Ours has another form with an explicit gradient; Keras's has one form only.
    in_training = {"training": True} if isinstance(layer, LayerNorm) else {}

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(variable, **in_training) ** 2)
        return tape.gradient(loss, weights)

    step()
    return step


def milliseconds(step):
    start = time.perf_counter()
    for _ in range(CALLS):
        step()
    return (time.perf_counter() - start) / CALLS * 1e3


def largest_error(layer, shape):
    """Compared with float64, on rows whose mean is 1,000 times their standard deviation."""
    x = (1000 + np.random.default_rng(1).standard_normal(shape)).astype("float32")
    exact = x.astype("float64") - x.astype("float64").mean(-1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6)
    return np.abs(layer(x) - exact).max()


def main():
    print("| shape | Keras, ms | ours, ms | ours / Keras | Keras, error | ours, error |\n|---|---|---|---|---|---|")
    for shape in SHAPES:
        x = np.random.default_rng(0).standard_normal(shape).astype("float32")
        layers = (keras.layers.LayerNormalization(epsilon=1e-6), LayerNorm())
        for layer in layers:
            layer.build(shape)
        steps = [compiled_step(layer, x) for layer in layers]
        # Alternating, so that other load on the machine affects both.
        pairs = [[milliseconds(step) for step in steps] for _ in range(ROUNDS)]
        theirs, ours = (statistics.median(times) for times in zip(*pairs))
        ratio = statistics.median(mine / other for other, mine in pairs)
        errors = [largest_error(layer, shape) for layer in layers]
        print(f"| {shape} | {theirs:.2f} | {ours:.2f} | {ratio:.2f} | {errors[0]:.1e} | {errors[1]:.1e} |")


if __name__ == "__main__":
    main()
