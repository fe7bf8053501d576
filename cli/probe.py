"""`keras-vit probe`: how good frozen features are for a data set with labels."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Probe:
    """Print the accuracy of nearest neighbors and of a linear classifier on frozen features.

    Features are computed once and kept in ~/.keras/keras_vit/features. For a few images a class: keras-vit few-shot.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes.
        dataset: "digits", a name of TensorFlow Datasets, or "folder:/path" with /path/<split>/<class>/<image>.
        methods: "knn" votes by similarity, "linear" is logistic regression, whose penalty is chosen on a tenth of the
            training split.
        train_split: In TensorFlow Datasets' notation, such as "train[:10%]".
        test_split: In TensorFlow Datasets' notation.
        data_dir: Where prepared data sets are kept; by default TensorFlow Datasets' own place.
        neighbors: How many vote; a line for each.
        batch_size: Images at a time.
        seed: Of the choice of the tenth.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    methods: tuple[Literal["knn", "linear"], ...] = ("knn", "linear")
    train_split: str = "train"
    test_split: str = "test"
    data_dir: str | None = None
    neighbors: tuple[int, ...] = (10, 20, 100)
    batch_size: int = 64
    seed: int = 0

    def run(self):
        """Evaluates and prints."""
        if not self.methods:
            raise ValueError("--methods is empty. Name knn, linear or both.")
        import numpy as np

        from keras_vit import load
        from keras_vit.recipes.data import count_examples, open_dataset
        from keras_vit.recipes.evaluation import probe
        from keras_vit.recipes.evaluation.features import features_of
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir))
        images = count_examples(dataset, self.train_split)
        if "knn" in self.methods and not all(1 <= count <= images for count in self.neighbors):
            raise ValueError(
                f"--neighbors must be between 1 and the {images:,} images of {self.train_split!r}. "
                f"Received: {', '.join(map(str, self.neighbors))}"
            )
        model = load(self.weights)
        splits = (self.train_split, self.test_split)
        train, test = (features_of(model, dataset, split, self.batch_size, verbose=True) for split in splits)
        print(f"{len(train[0]):,} and {len(test[0]):,} images of {self.dataset}, {train[0].shape[1]} features")
        if "knn" in self.methods:
            for count in self.neighbors:
                found = probe.knn(*train, test[0], count)
                print(f"{count:>3} nearest neighbors: {np.mean(found == test[1]):.2%}")
        if "linear" in self.methods:
            found, strength = probe.linear_probe(*train, test[0], self.seed)
            print(f"linear: {np.mean(found == test[1]):.2%} (inverse penalty {strength:g})")
