"""Dropout whose masks are not stored in a training step."""

import keras
from keras import ops

from keras_vit.keras_internals import compiled_by_xla, fixed_seeds
from keras_vit.layers.xla.barriers import in_current_name_scope, separate_from_forward
from keras_vit.layers.xla.recompute import next_seed


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that redraws its mask in the backward pass where XLA compiles TensorFlow's step.

    A mask of B/16's hidden tokens is half as large as the tokens, and a TPU draws random bits with one instruction.

    Input: any shape. Output: the same shape; the identity outside training.

    Args:
        rate, noise_shape, seed: See `keras.layers.Dropout`.
    """

    def call(self, inputs, training=False):
        if not (training and self.rate and compiled_by_xla()) or keras.backend.backend() != "tensorflow":
            return super().call(inputs, training=training)

        def drop(x, seed):
            with fixed_seeds([self.seed_generator], [seed]):
                return super(Dropout, self).call(x, training=True)

        @ops.custom_gradient
        def run(x, seed):
            def gradient(upstream):
                (same_seed,), upstream = separate_from_forward([seed], upstream)
                return drop(upstream, same_seed), ops.zeros_like(seed)

            # The seed waits for x: otherwise the compiler draws the bits of all layers first.
            (tied_seed,), _ = separate_from_forward([seed], x[(0,) * len(x.shape)])
            return drop(x, tied_seed), in_current_name_scope(gradient)

        return run(inputs, next_seed(self.seed_generator))
