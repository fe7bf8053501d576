"""Dropout whose masks no training step keeps."""

import keras
from keras import ops

from keras_vit.layers.remat import apart, compiled_by_xla, draw_seed, fixed_seeds, named


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that draws its mask again in the backward pass where XLA compiles the step.

    A mask of B/16's hidden tokens is as large as half of them, and a TPU draws random bits with an instruction.

    Input: any shape. Output: the same shape; nothing happens outside training.

    Args:
        rate, noise_shape, seed: As of `keras.layers.Dropout`.
    """

    def call(self, inputs, training=False):
        if not (training and self.rate and compiled_by_xla()):
            return super().call(inputs, training=training)

        def drop(x, seed):
            with fixed_seeds([self.seed_generator], [seed]):
                return super(Dropout, self).call(x, training=True)

        @ops.custom_gradient
        def run(x, seed):
            def gradient(upstream):
                (again,), upstream = apart([seed], upstream)
                return drop(upstream, again), ops.zeros_like(seed)

            # Not before x is there: else the compiler draws the bits of all layers first.
            (tied,), _ = apart([seed], x[(0,) * len(x.shape)])
            return drop(x, tied), named(gradient)

        return run(inputs, draw_seed(self.seed_generator))
