"""Recomputation: only the input of a part is stored for the backward pass, which recomputes the rest; and dropout.

On TensorFlow, `keras.remat` (`tf.recompute_grad`) saves nothing once XLA compiles the step: XLA finds a recomputation
equal to the first computation and merges them. A barrier on the backward pass's inputs separates them. The operation
exists only for XLA; in other graphs a control dependency does the same.

Large batches are recomputed for a part of the images at a time, in a loop. The largest tensors of a block are the
attention weights and the hidden tokens of the MLP, which the backward pass requires with their gradients. With
`remat="block"` only one block has them at a time, and so for one part of the images only. What grows with the batch is
the input of each block.
"""

import keras
from keras import ops, tree

from keras_vit.keras_internals import compiled_by_xla, fixed_seeds, seed_generators, xla_optimization_barrier

MAX_TOKENS = 2**17  # of a batch that is computed at once: 665 images of 197 tokens
MAX_PART, MIN_PART = 2**16, 2**13  # tokens of a part
SUBLANES = 8  # rows of a tile: the number of images in a part is a multiple
SEED_STEP = 2**20  # between the seeds of parts


def recompute(function, x, dropout_layers=(), output_length=None):
    """function(x), of which only x is stored for the backward pass.

    Args:
        function: From a tensor to a tensor; may use weights and draw random numbers.
        x: Tensor.
        dropout_layers: Layers that the function draws random numbers in: the recomputation draws the same numbers.
        output_length: M, if the function is (B, N, D) -> (B, M, D) for each image by itself. Where XLA compiles
            TensorFlow's step, large batches are then computed in parts, see `number_of_parts`.
    """
    generators = seed_generators(dropout_layers)
    seeds = [next_seed(generator) for generator in generators]

    def run_with_seeds(x, seeds):
        with fixed_seeds(generators, seeds):
            return function(x)

    if keras.backend.backend() != "tensorflow":
        return keras.remat(lambda x: run_with_seeds(x, seeds))(x)
    parts = number_of_parts(x) if output_length and compiled_by_xla() else 1
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
            both = gradients_in_parts(gradients, x_again, same_seeds, upstream, list(variables), parts)
            # The next block waits for them: otherwise the gradients of weights are postponed, and their inputs stored.
            (for_x, for_variables), _ = separate_from_forward(both, ())
            return (for_x, for_variables) if variables else for_x

        return outputs_in_parts(function, x, seeds, parts, output_length), in_current_name_scope(gradient)

    return run(x)


def number_of_parts(x) -> int:
    """The smallest number of parts for tokens (B, N, D); 1 if the batch is small, or does not divide well."""
    batch, length = x.shape[:2]
    if batch is None or batch * length <= MAX_TOKENS:
        return 1
    sizes = [batch // parts for parts in range(2, batch + 1) if batch % parts == 0]
    return next((batch // size for size in sizes if size % SUBLANES == 0 and MIN_PART <= size * length <= MAX_PART), 1)


def outputs_in_parts(function, x, seeds, parts, output_length):
    """function(x, seeds): (B, N, D) -> (B, M, D)."""
    if parts == 1:
        return function(x, seeds)

    def step(i, output):
        return _set_part(output, i, function(_part(x, i, parts), _seeds_of_part(seeds, i)))

    return ops.fori_loop(0, parts, step, ops.zeros_like(x[:, :output_length]))


def gradients_in_parts(function, x, seeds, upstream, variables, parts):
    """function(x, seeds, upstream, variables): the gradients of x, and of each variable, summed over the images."""
    if parts == 1:
        return function(x, seeds, upstream, variables)

    def step(i, state):
        part, part_upstream = (_part(tensor, i, parts) for tensor in (x, upstream))
        for_x, for_variables = function(part, _seeds_of_part(seeds, i), part_upstream, variables)
        return _set_part(state[0], i, for_x), [total + one for total, one in zip(state[1], for_variables)]

    return ops.fori_loop(0, parts, step, (ops.zeros_like(x), [ops.zeros_like(variable) for variable in variables]))


def _part(x, i, parts):
    """(B, N, D) -> (B / parts, N, D)."""
    size = x.shape[0] // parts
    return ops.slice(x, (i * size, 0, 0), (size, *x.shape[1:]))


def _set_part(x, i, part):
    return ops.slice_update(x, (i * part.shape[0], 0, 0), part)


def _seeds_of_part(seeds, i):
    return [seed + ops.cast(ops.stack([i * SEED_STEP, 0]), seed.dtype) for seed in seeds]


def separate_from_forward(stored, upstream):
    """Both arguments unchanged, but no compiler merges what is computed from them with what was computed before."""
    both = (stored, upstream)
    if compiled_by_xla():
        return tree.pack_sequence_as(both, xla_optimization_barrier(tree.flatten(both)))
    import tensorflow as tf

    if tf.executing_eagerly():
        return both
    with tf.control_dependencies(tree.flatten(upstream)):
        return tree.map_structure(tf.identity, stored), upstream


def custom_gradient(function):
    """`keras.ops.custom_gradient` of a function that returns its output and the function of its gradients.

    On TensorFlow and JAX. Other backends derive the gradients, with the same numbers; Keras calls the function with
    other arguments on torch.
    """
    if keras.backend.backend() not in ("tensorflow", "jax"):
        return lambda *inputs: function(*inputs)[0]

    @ops.custom_gradient
    def run(*inputs):
        output, gradient = function(*inputs)
        return output, in_current_name_scope(gradient)

    return run


def in_current_name_scope(gradient):
    """A gradient function that runs in the name scope of the current layer, which compilers show in their reports."""
    if keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    scope = tf.get_current_name_scope()

    def run(*upstream, **variables):
        with tf.name_scope(f"{scope}/" if scope else "gradient"):
            return gradient(*upstream, **variables)

    return run


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that redraws its mask in the backward pass where XLA compiles TensorFlow's step.

    A mask of B/16's hidden tokens is half as large as the tokens, and a TPU draws random bits with one instruction.

    Input: any shape. Output: the same shape; the identity outside training.
    """

    def call(self, inputs, training=False):
        if not (training and self.rate and compiled_by_xla()) or keras.backend.backend() != "tensorflow":
            return super().call(inputs, training=training)

        def drop(x, seed):
            with fixed_seeds([self.seed_generator], [seed]):
                return super(Dropout, self).call(x, training=True)

        @custom_gradient
        def run(x, seed):
            def gradient(upstream):
                (same_seed,), upstream = separate_from_forward([seed], upstream)
                return drop(upstream, same_seed), ops.zeros_like(seed)

            # The seed waits for x: otherwise the compiler draws the bits of all layers first.
            (tied_seed,), _ = separate_from_forward([seed], x[(0,) * len(x.shape)])
            return drop(x, tied_seed), gradient

        return run(inputs, next_seed(self.seed_generator))
