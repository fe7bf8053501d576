"""Recomputation: of a part of the model only its input is kept for the backward pass, which computes the rest anew.

On TensorFlow, `keras.remat` (`tf.recompute_grad`) saves nothing once XLA compiles the step: XLA finds both computations
alike and merges them. A barrier on the backward pass's inputs keeps them apart. The barrier exists only for XLA; in
other graphs a control dependency does the same.
"""

from contextlib import contextmanager

import keras
from keras import ops, tree

REMAT = (None, "mlp", "attention", "block")


def remat_of_layers(remat, depth: int) -> list:
    """What each of `depth` blocks recomputes: `remat` for all of them, or one entry a block.

    Raises:
        ValueError: An unknown name, or a list of another length.
    """
    each = list(remat) if isinstance(remat, (list, tuple)) else [remat] * depth
    if len(each) != depth or any(one not in REMAT for one in each):
        raise ValueError(
            f"`remat` must be None, 'mlp', 'attention' or 'block', or a list of these for the {depth} blocks. "
            f"Received: {remat!r}"
        )
    return each


def recompute(function, x, generators=()):
    """function(x), of which only x is kept for the backward pass.

    Args:
        function: From a tensor to a tensor; may use weights and draw random numbers.
        x: Tensor.
        generators: The `keras.random.SeedGenerator`s that the function draws from, once each: it draws the same again.
    """
    seeds = [draw_seed(generator) for generator in generators]

    def replayed(x, seeds):
        with fixed_seeds(generators, seeds):
            return function(x)

    if keras.backend.backend() != "tensorflow":
        return keras.remat(lambda x: replayed(x, seeds))(x)
    return _recompute_in_tensorflow(replayed, x, seeds)


def seed_generators(layers) -> list:
    """Those of dropout layers that draw at all."""
    found = [getattr(layer, "seed_generator", None) for layer in layers]
    return [generator for generator in found if generator is not None]


def draw_seed(generator):
    """The generator's next seed, such that where XLA compiles the step Keras need not take a remainder of 64 bits.

    A TPU has no such numbers: the remainder takes 1,700 instructions, most of all in a step with dropout.
    """
    seed = generator.next()
    if not compiled_by_xla() or keras.backend.standardize_dtype(seed.dtype) == "int32":
        return seed
    largest = 2**31 - 2  # Keras's divisor; seeds are below 2**32, so that two steps are enough
    for _ in range(2):
        seed = ops.where(seed >= largest, seed - largest, seed)
    return ops.cast(seed, "int32")


@contextmanager
def fixed_seeds(generators, seeds):
    """Gives generators a seed to draw instead of their next one; within another such context, too."""
    before = [vars(generator).get("next") for generator in generators]
    for generator, seed in zip(generators, seeds):
        generator.next = lambda ordered=True, seed=seed: seed
    try:
        yield
    finally:
        for generator, former in zip(generators, before):
            if former is None:
                del generator.next
            else:
                generator.next = former


def _recompute_in_tensorflow(function, x, seeds):
    import tensorflow as tf

    @tf.custom_gradient
    def run(x):
        def gradient(upstream, variables=()):
            # The seeds, too: else the random masks are merged, and kept.
            (again, *same_seeds), upstream = apart([x, *seeds], upstream)
            with tf.GradientTape() as tape:
                tape.watch(again)
                output = function(again, same_seeds)
            zero = tf.UnconnectedGradients.ZERO
            found = tape.gradient(output, (again, list(variables)), upstream, unconnected_gradients=zero)
            # The next block waits for them: else weights' gradients are put off, and what they need is kept.
            (for_x, for_variables), _ = apart(found, ())
            return (for_x, for_variables) if variables else for_x

        return function(x, seeds), named(gradient)

    return run(x)


def named(gradient):
    """A gradient's function under the name of the layer that is called now: reports and errors of compilers say it."""
    if keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    scope = tf.get_current_name_scope()

    def run(*upstream, **variables):
        with tf.name_scope(f"{scope}/" if scope else "gradient"):
            return gradient(*upstream, **variables)

    return run


def apart(kept, upstream):
    """Both as they are, such that no compiler merges what is computed from them with what was computed before.

    Args:
        kept: Tensors of the forward pass, nested.
        upstream: Gradients, nested, which only the backward pass has.
    """
    import tensorflow as tf

    if tf.executing_eagerly():
        return kept, upstream
    if not compiled_by_xla():
        with tf.control_dependencies(tree.flatten(upstream)):
            return tree.map_structure(tf.identity, kept), upstream
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    both = (kept, upstream)
    return tree.pack_sequence_as(both, gen_xla_ops.xla_optimization_barrier(input=tree.flatten(both)))


def compiled_by_xla() -> bool:
    """Whether what is traced now will be compiled by XLA: within `jit_compile=True`, or under `TPUStrategy`."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
