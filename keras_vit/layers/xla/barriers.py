"""Barriers between the forward and the backward pass, so that XLA does not merge equal computations of both.

XLA finds a recomputation equal to the first computation and merges them, which saves no memory. A barrier on the
backward pass's inputs separates them. The operation exists only for XLA; in other graphs a control dependency does the
same.
"""

import keras
from keras import tree

from keras_vit.keras_internals import compiled_by_xla, xla_optimization_barrier


def separate_from_forward(stored, upstream):
    """Both arguments unchanged, but no compiler merges what is computed from them with what was computed before.

    Args:
        stored: Tensors of the forward pass, nested.
        upstream: Gradients, nested, which only the backward pass has.
    """
    both = (stored, upstream)
    if compiled_by_xla():
        return tree.pack_sequence_as(both, xla_optimization_barrier(tree.flatten(both)))
    import tensorflow as tf

    if tf.executing_eagerly():
        return both
    with tf.control_dependencies(tree.flatten(upstream)):
        return tree.map_structure(tf.identity, stored), upstream


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
