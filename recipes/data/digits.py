"""Scikit-learn's handwritten digits as a TensorFlow Datasets builder: 1,797 real images that need no download."""

import numpy as np
import tensorflow_datasets as tfds

# The test split is so large that one image is 0.2 percentage points of accuracy.
SPLITS = {"train": 1097, "validation": 200, "test": 500}


class Digits(tfds.core.GeneratorBasedBuilder):
    """Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak; UCI, 1998), the part in scikit-learn."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=[str(digit) for digit in range(10)]),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        # The file is sorted by writer, so splits are drawn at random. RandomState never changes, and 2 is its first
        # seed with at least 100 training images of every class.
        order = np.random.RandomState(2).permutation(sum(SPLITS.values()))
        bounds = np.cumsum(list(SPLITS.values()))[:-1]
        return {name: self._generate_examples(part) for name, part in zip(SPLITS, np.split(order, bounds))}

    def _generate_examples(self, indices):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
        for key, index in enumerate(indices):
            yield key, {"image": images[index], "label": int(digits.target[index])}
