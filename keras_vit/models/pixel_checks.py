"""`fit`, `evaluate` and `predict` of models, which refuse pixels in [0, 255] where the model takes scaled ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import numpy as np

from keras_vit.images.pixel_range import UNSCALED, expected_range, scaled_range


def is_ours(model) -> bool:
    """Whether a model is of a class of this package, not of a user's subclass, whose inputs and outputs may differ."""
    return type(model).__module__.startswith("keras_vit.")


RECEIVED = "Received: larger ones, as in [0, 255]."


class ChecksPixels(keras.Model):
    """Checks the first image of arrays, of a `PyDataset` and of each batch of a tf.data.Dataset.

    The check of a dataset consists of operations of its graph: it works under strategies, and nothing of the model is
    in the dataset. Generators, distributed datasets, calls, and models around this one are not checked.
    """

    def fit(self, x=None, *args, **kwargs):
        """As Keras's; raises a ValueError for unscaled pixels."""
        with self._pixel_errors():
            validation = kwargs.get("validation_data")
            if validation is not None:
                kwargs["validation_data"] = self._checked_pair(validation)
            return super().fit(self._checked_pixels(x), *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """As Keras's; raises a ValueError for unscaled pixels."""
        with self._pixel_errors():
            return super().evaluate(self._checked_pixels(x), *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As Keras's; raises a ValueError for unscaled pixels."""
        with self._pixel_errors():
            return super().predict(self._checked_pixels(x), *args, **kwargs)

    def train_on_batch(self, x, *args, **kwargs):
        """As Keras's; raises a ValueError for unscaled pixels."""
        return super().train_on_batch(self._checked_pixels(x), *args, **kwargs)

    def test_on_batch(self, x, *args, **kwargs):
        """As Keras's; raises a ValueError for unscaled pixels."""
        return super().test_on_batch(self._checked_pixels(x), *args, **kwargs)

    def predict_on_batch(self, x):
        """As Keras's; raises a ValueError for unscaled pixels."""
        return super().predict_on_batch(self._checked_pixels(x))

    def _checked_pair(self, data):
        return (self._checked_pixels(data[0]), *data[1:]) if isinstance(data, tuple) else self._checked_pixels(data)

    def _checked_pixels(self, x):
        """The data, a dataset with a check in its graph. Raises a ValueError for arrays of unscaled pixels."""
        if not is_ours(self):  # a subclass may scale them itself
            return x
        limit = UNSCALED * max(map(abs, scaled_range(self.preprocessing.mean, self.preprocessing.std)))
        if hasattr(x, "element_spec") and hasattr(x, "map"):
            return _checked_dataset(x, limit)
        first = x[0] if isinstance(x, (list, tuple, keras.utils.PyDataset)) and len(x) else x
        first = first[0] if isinstance(first, tuple) else first  # images of a batch of a `PyDataset`
        if len(getattr(first, "shape", ())) != 4:
            return x  # the model says what is wrong
        self._check_images(first)  # graphs of TensorFlow know no shape once they saw several
        if not len(first):
            raise ValueError(f"Expected at least one image. Received: the shape {tuple(first.shape)}.")
        if np.max(np.asarray(first[:1], "float32")) > limit:
            raise ValueError(self._unscaled_text())
        return x

    def _unscaled_text(self) -> str:
        return (
            f"Expected pixels {expected_range(self.preprocessing)}. {RECEIVED} Use "
            'model.preprocess(images), or preprocessing="pixels" for a model that is trained on pixels in [0, 255].'
        )

    @contextmanager
    def _pixel_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, ValueError) or RECEIVED not in str(error):
                raise
            raise ValueError(self._unscaled_text()) from None


def _checked_dataset(dataset, limit):
    """The dataset, whose iteration raises an InvalidArgumentError with `RECEIVED` for images above a limit."""
    spec = dataset.element_spec
    images = spec[0] if isinstance(spec, tuple) else spec
    if getattr(getattr(images, "shape", None), "rank", None) != 4 or not images.dtype.is_floating:
        return dataset  # the model says what is wrong
    import tensorflow as tf

    def checked(*batch):
        largest = tf.reduce_max(tf.cast(batch[0][:1], tf.float32))
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(largest > limit), [RECEIVED])]):
            images = tf.identity(batch[0])
        return (images, *batch[1:]) if isinstance(spec, tuple) else images

    return dataset.map(tf.autograph.experimental.do_not_convert(checked))
