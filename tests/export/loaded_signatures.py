"""Calls the signatures of a SavedModel on arrays."""

import tensorflow as tf


def load(folder):
    """Name -> signature."""
    loaded = tf.saved_model.load(str(folder))
    return {name: Signature(loaded, name) for name in loaded.signatures}


class Signature:
    def __init__(self, loaded, name):
        self.loaded, self.name = loaded, name  # the variables live only as long as `loaded`

    def __call__(self, value):
        function = self.loaded.signatures[self.name]
        (argument,) = function.structured_input_signature[1]
        return {name: tensor.numpy() for name, tensor in function(**{argument: tf.constant(value)}).items()}
