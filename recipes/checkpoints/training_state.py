"""What a checkpoint holds: all variables of a model and its optimizer, as TensorFlow's checkpoints take them."""

import keras
import tensorflow as tf
from keras import ops


class TrainingState:
    """The variables of a compiled model and its optimizer, among them random-generator states.

    With Keras on TensorFlow they are its own variables; with JAX copies of these, in the memory of the host.

    Attributes:
        groups: {"model": variables, "optimizer": variables}. Names are numbers, since Keras's contain a count of the
            models in the process.
    """

    def __init__(self, model):
        self.with_jax = keras.backend.backend() == "jax"
        self.pairs: list[tuple] = []  # a variable of Keras and its copy
        self.groups = {"model": self._numbered(model.variables), "optimizer": self._numbered(model.optimizer.variables)}

    def copy_from_model(self):
        """Copies the current values, before a checkpoint is written."""
        for variable, copy in self.pairs:
            copy.assign(ops.convert_to_numpy(variable))

    def copy_to_model(self):
        """Copies the values back, after a checkpoint was read."""
        for variable, copy in self.pairs:
            variable.assign(copy.numpy())

    def _numbered(self, variables):
        return {f"{i:05d}": self._tensorflow_variable(variable) for i, variable in enumerate(variables)}

    def _tensorflow_variable(self, variable):
        if not self.with_jax:
            return variable.value
        value = ops.convert_to_numpy(variable)
        # Keras's integers are int64 with TensorFlow, also the states of random generators, which are unsigned with JAX:
        # a checkpoint of either can be read with the other.
        copy = tf.Variable(value.astype("int64") if value.dtype.kind in "iu" else value)
        self.pairs.append((variable, copy))
        return copy
