"""Recomputation: only the input of a part is stored for the backward pass, which recomputes the rest.

On TensorFlow, `keras.remat` (`tf.recompute_grad`) saves nothing once XLA compiles the step; see `barriers`.
"""

import keras
from keras import ops

from keras_vit.keras_internals import compiled_by_xla, fixed_seeds, seed_generators
from keras_vit.layers.xla import image_parts
from keras_vit.layers.xla.barriers import in_current_name_scope, separate_from_forward


def recompute(function, x, dropout_layers=(), output_length=None):
    """function(x), of which only x is stored for the backward pass.

    Args:
        function: From a tensor to a tensor; may use weights and draw random numbers.
        x: Tensor.
        dropout_layers: Layers that the function draws random numbers in: the recomputation draws the same numbers.
        output_length: M, if the function is (B, N, D) -> (B, M, D) for each image by itself. Where XLA compiles
            TensorFlow's step, large batches are then computed in parts, see `image_parts`.
    """
    generators = seed_generators(dropout_layers)
    seeds = [next_seed(generator) for generator in generators]

    def run_with_seeds(x, seeds):
        with fixed_seeds(generators, seeds):
            return function(x)

    if keras.backend.backend() != "tensorflow":
        return keras.remat(lambda x: run_with_seeds(x, seeds))(x)
    parts = image_parts.number_of_parts(x) if output_length and compiled_by_xla() else 1
    return _recompute_in_tensorflow(run_with_seeds, x, seeds, parts, output_length)


def recompute_dropout(function, x, dropout_layers, training):
    """function(x); where XLA compiles a training step with dropout, its random bits are drawn twice, not stored.

    The arguments are those of `recompute`, but all of function(x) is recomputed.
    """
    if not (training and seed_generators(dropout_layers) and compiled_by_xla()):
        return function(x)
    return recompute(function, x, dropout_layers)


def next_seed(generator):
    """The generator's next seed; where XLA compiles TensorFlow's step, without the 64-bit remainder that Keras takes.

    A TPU has no 64-bit integers: the remainder takes 1,700 instructions, the majority in a step with dropout.
    """
    seed = generator.next()
    if keras.backend.backend() != "tensorflow" or not compiled_by_xla() or seed.dtype == "int32":
        return seed
    divisor = 2**31 - 2  # Keras's; seeds are below 2**32, so two subtractions are enough
    for _ in range(2):
        seed = ops.where(seed >= divisor, seed - divisor, seed)
    return ops.cast(seed, "int32")


def _recompute_in_tensorflow(function, x, seeds, parts, output_length):
    import tensorflow as tf

    def gradients(x, seeds, upstream, variables):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = function(x, seeds)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(output, (x, variables), upstream, unconnected_gradients=zero)

    @tf.custom_gradient
    def run(x):
        def gradient(upstream, variables=()):
            # The seeds, too: otherwise the random masks are merged, and stored.
            (x_again, *same_seeds), upstream = separate_from_forward([x, *seeds], upstream)
            found = image_parts.gradients(gradients, x_again, same_seeds, upstream, list(variables), parts)
            # The next block waits for them: otherwise the gradients of weights are postponed, and their inputs stored.
            (for_x, for_variables), _ = separate_from_forward(found, ())
            return (for_x, for_variables) if variables else for_x

        return image_parts.outputs(function, x, seeds, parts, output_length), in_current_name_scope(gradient)

    return run(x)
