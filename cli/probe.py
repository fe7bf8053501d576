"""`keras-vit probe`: k-NN and linear probe accuracy of frozen features."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from keras_vit_cli.evaluated_inputs import check_model_and_dataset
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation

NEIGHBORS = (10, 20, 100)


@dataclass(frozen=True)
class Probe:
    """Print the accuracy of k nearest neighbors and of a linear classifier on frozen features.

    The model's own classes do not matter: its head is not used, and both splits have the classes of the dataset.
    Features are computed once and cached in ~/.keras/keras_vit/features. With a few images per class, use keras-vit
    few-shot.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        dataset: "digits", a name of TensorFlow Datasets, or "folder:/path" with /path/<split>/<class>/<image>.
        methods: "knn" votes by cosine similarity; "linear" is logistic regression, its penalty chosen on a held-out
            tenth of the training split.
        train_split: In TensorFlow Datasets' notation, such as "train[:10%]".
        test_split: In TensorFlow Datasets' notation.
        data_dir: Folder of prepared datasets; by default that of TensorFlow Datasets.
        neighbors: Numbers of neighbors that vote, one result each. Default: 10, 20 and 100, as far as there are as many
            training images.
        batch_size: Number of images at a time.
        seed: Seed of the held-out tenth.
        preparation: How images are prepared, if it is not as the weights state.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    methods: tuple[Literal["knn", "linear"], ...] = ("knn", "linear")
    train_split: str = "train"
    test_split: str = "test"
    data_dir: str | None = None
    neighbors: tuple[int, ...] | None = None
    batch_size: int = 64
    seed: int = 0
    preparation: Preparation = AS_STATED

    def run(self):
        """Evaluates and prints."""
        if not self.methods:
            raise ValueError("--methods is empty. Pass knn, linear or both.")
        check_model_and_dataset(self.weights, self.dataset)
        import numpy as np

        from keras_vit.recipes.data import count_examples, open_dataset
        from keras_vit.recipes.data.arrays import check_any
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation.features import extract_features
        from keras_vit.recipes.evaluation.probe import knn, linear_probe
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir))
        check_several_classes(dataset)
        if "knn" in self.methods and self.neighbors is not None:
            self._counts(count_examples(dataset, self.train_split))
        model = self.preparation.load(self.weights)
        (train, labels), (test, test_labels) = (
            extract_features(model, dataset, split, self.batch_size, max_corrupt=1.0, verbose=True)
            for split in (self.train_split, self.test_split)
        )
        for split, features in ((self.train_split, train), (self.test_split, test)):
            check_any(features, dataset, split)
        print(f"{len(train):,} training and {len(test):,} test images of {self.dataset}, {train.shape[1]} features")
        for count in self._counts(len(train)) if "knn" in self.methods else ():
            predicted = knn(train, labels, test, count)
            print(f"{count:>3} nearest neighbors: {np.mean(predicted == test_labels):.2%}")
        if "linear" in self.methods:
            predicted, inverse_penalty = linear_probe(train, labels, test, self.seed)
            print(f"linear: {np.mean(predicted == test_labels):.2%} (inverse penalty {inverse_penalty:g})")

    def _counts(self, images: int) -> tuple[int, ...]:
        """The numbers of neighbors, for a number of training images; prints which ones of the default do not fit.

        Raises:
            ValueError: A given one does not fit.
        """
        wanted = NEIGHBORS if self.neighbors is None else self.neighbors
        fitting = tuple(count for count in wanted if 1 <= count <= images) or (1,)
        if self.neighbors is None:
            if omitted := [str(count) for count in wanted if count > images]:
                print(f"Note: {', '.join(omitted)} neighbors are skipped: {self.train_split!r} has {images:,} images.")
            return fitting
        if fitting != wanted:
            raise ValueError(
                f"--neighbors must be between 1 and the {images:,} images of {self.train_split!r}. "
                f"Received: {', '.join(map(str, wanted)) or 'none'}. Pass those that fit, such as --neighbors "
                f"{' '.join(map(str, fitting))}"
            )
        return wanted
