"""Checks of `fit`, `evaluate` and `predict`: their loss, and the first batch, as compiled steps see no values."""

import functools
import sys
import weakref
from types import GeneratorType

import keras

from keras_vit.keras_internals import is_distributed
from keras_vit.models.logit_loss import check_loss
from keras_vit.pixel_range import check_scaled

BATCH_SIZE = 32  # of Keras, for arrays


def first_batch_checked(name: str):
    """`fit`, `evaluate` or `predict` of `keras.Model`, with checks of the loss and of the size and pixels of a batch.

    Images are checked in arrays, tensors, tf.data.Dataset and Python generators; not in other data, and not under a
    distribution strategy, where other processes may read the data.
    """

    @functools.wraps(getattr(keras.Model, name))
    def checked(self, x=None, *args, **kwargs):
        if name != "predict":
            check_loss(self)
        batch = _FirstBatch(self)
        try:
            # At the time of the call: MLflow's autolog and other tools replace the methods of `keras.Model`.
            return getattr(keras.Model, name)(self, batch.watched(x), *args, **kwargs)
        except Exception:
            if batch.problem is None:
                raise
        raise batch.problem

    return checked


class _FirstBatch:
    """The first batch that a model receives, and the problem that was found in it."""

    def __init__(self, model):
        # Weak: TensorFlow keeps the Python function in a dataset, and all that it refers to, for ever.
        self.model = weakref.ref(model)
        self.distributed = is_distributed(model)
        self.problem: Exception | None = None

    def watched(self, data):
        """The same data; the check happens here, or once a dataset is read."""
        tensorflow = sys.modules.get("tensorflow")  # without it there are no datasets of it
        if tensorflow and isinstance(data, tensorflow.data.Dataset):
            return data if self.distributed else self._watched_dataset(data)
        if isinstance(data, GeneratorType):
            return self._watched_generator(data)
        if len(getattr(data, "shape", None) or ()) == 4:
            self._check(data[:BATCH_SIZE])
        return data

    def _watched_generator(self, generator):
        for number, batch in enumerate(generator):
            images = batch[0] if isinstance(batch, tuple) else batch
            if number == 0 and hasattr(images, "dtype"):
                self._check(images)
            yield batch

    def _watched_dataset(self, dataset):
        import tensorflow as tf

        spec = dataset.element_spec
        spec = spec[0] if isinstance(spec, tuple) else spec
        if not isinstance(spec, tf.TensorSpec):
            return dataset

        def check(images):
            try:
                self._check(images)
            except Exception as problem:
                self.problem = problem
                raise StopIteration from None  # TensorFlow logs it, and its own errors lose class and message
            return True

        def watch(number, batch):
            images = batch[0] if isinstance(batch, tuple) else batch
            tf.cond(number == 0, lambda: tf.numpy_function(check, [images], tf.bool), lambda: True)
            return batch

        return dataset.enumerate().map(watch)

    def _check(self, images):
        # Raises as a call does. A step that was compiled for several sizes would report its operation, not the size.
        model = self.model()
        model.compute_output_spec(keras.KerasTensor(images.shape, keras.backend.standardize_dtype(images.dtype)))
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(images.dtype)):
            check_scaled(images, model.preprocessing)
