"""`keras-vit probe`, `few-shot` and `vtab`: how well a checkpoint transfers to another dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.inputs import check_model_and_dataset, check_weights
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation


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
        neighbors: Numbers of neighbors that vote, one result each; numbers above that of training images are skipped.
        batch_size: Number of images at a time.
        preparation: How images are prepared, if it is not as the weights state.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    methods: tuple[Literal["knn", "linear"], ...] = ("knn", "linear")
    train_split: str = "train"
    test_split: str = "test"
    data_dir: str | None = None
    neighbors: tuple[int, ...] = (10, 20, 100)
    batch_size: int = 64
    preparation: Preparation = AS_STATED

    def run(self):
        """Evaluates and prints."""
        if not self.methods:
            raise ValueError("--methods is empty. Pass knn, linear or both.")
        check_model_and_dataset(self.weights, self.dataset)
        import numpy as np

        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.arrays import check_any
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation.features import extract_features
        from keras_vit.recipes.evaluation.probe import knn, linear_probe
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir))
        check_several_classes(dataset)
        model = self.preparation.load(self.weights)
        (train, labels), (test, test_labels) = (
            extract_features(model, dataset, split, self.batch_size, max_corrupt=1.0, verbose=True)
            for split in (self.train_split, self.test_split)
        )
        for split, features in ((self.train_split, train), (self.test_split, test)):
            check_any(features, dataset, split)
        print(f"{len(train):,} training and {len(test):,} test images of {self.dataset}, {train.shape[1]} features")
        for count in self.neighbors if "knn" in self.methods else ():
            if count > len(train):
                print(f"{count:>3} nearest neighbors: skipped, {self.train_split!r} has {len(train):,} images")
                continue
            predicted = knn(train, labels, test, count)
            print(f"{count:>3} nearest neighbors: {np.mean(predicted == test_labels):.2%}")
        if "linear" in self.methods:
            predicted, inverse_penalty = linear_probe(train, labels, test)
            print(f"linear: {np.mean(predicted == test_labels):.2%} (inverse penalty {inverse_penalty:g})")


@dataclass(frozen=True)
class FewShot:
    """Print the accuracy of a linear classifier on frozen features of a few images per class, in closed form.

    The model's own classes do not matter: its head is not used, and both splits have the classes of the dataset.
    Features are computed once and cached in ~/.keras/keras_vit/features.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        dataset: "digits", a name of TensorFlow Datasets, or "folder:/path" with /path/<split>/<class>/<image>.
        train_split: In TensorFlow Datasets' notation, such as "train[:10%]".
        test_split: In TensorFlow Datasets' notation.
        data_dir: Folder of prepared datasets; by default that of TensorFlow Datasets.
        shots: Numbers of training images per class; a class with fewer contributes those that it has.
        seeds: Seeds of the choice of images.
        l2: L2 penalty on the weights.
        resizing: "big_vision" squashes images and crops 7 / 8 of the side; "weights" resizes them as the weights
            require.
        preparation: How images are prepared, if it is not as the weights state.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    train_split: str = "train"
    test_split: str = "test"
    data_dir: str | None = None
    shots: tuple[int, ...] = (1, 5, 10, 25)
    seeds: tuple[int, ...] = (0, 1, 2)
    l2: float = 2.0**10
    resizing: Literal["big_vision", "weights"] = "big_vision"
    preparation: Preparation = AS_STATED

    def run(self):
        """Evaluates and prints."""
        replaced = {"resize", "crop_fraction", "interpolation"} & self.preparation.single.keys()
        if replaced and self.resizing == "big_vision":
            raise ValueError("--resize, --crop-fraction and --interpolation require --resizing weights.")
        check_model_and_dataset(self.weights, self.dataset)
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation import few_shot
        from keras_vit.recipes.recipe import Data

        data = Data(
            dataset=self.dataset, train_split=self.train_split, test_split=self.test_split, data_dir=self.data_dir
        )
        recipe = few_shot.FewShot(data, self.shots, self.seeds, self.l2, resizing=self.resizing)
        check_several_classes(open_dataset(data))  # before the model is loaded, which may print
        few_shot.few_shot(self.preparation.load(self.weights), recipe, verbose=True, log=print)


@dataclass(frozen=True)
class Vtab:
    """Fine-tune a checkpoint on each task of VTAB-1k by the paper's recipe, and print its Table 9.

    Finished tasks in the folder are not run again, interrupted ones are resumed.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        folder: Folder of the runs and of vtab.json.
        data_dir: Folder of prepared datasets; by default that of TensorFlow Datasets.
        tasks: Run only these tasks; the means require all of them.
        preparation: Mean and standard deviation of the pixels; the recipe sets the rest.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    folder: Path = Path("runs/vtab")
    data_dir: str | None = None
    tasks: tuple[str, ...] = ()
    preparation: Preparation = AS_STATED

    def run(self):
        """Trains, and prints the table."""
        fields = self.preparation.fields() or {}
        if other := sorted(fields.keys() - {"mean", "std"}):
            raise ValueError(f"VTAB's recipe sets {', '.join(other)}. Expected --preprocessing imagenet or half.")
        check_weights(self.weights)
        from keras_vit.recipes.configs.vtab import TASKS
        from keras_vit.recipes.evaluation.vtab import run_vtab

        result = run_vtab(self.weights, self.folder, data_dir=self.data_dir, tasks=self.tasks, **fields)
        print("\n| task | group | top-1, % |\n|---|---|---|")
        for name, top1 in result.tasks.items():
            print(f"| {TASKS[name].title} | {TASKS[name].group} | {100 * top1:.1f} |")
        for group, mean in result.means.items():
            print(f"| **mean** | {group} | **{100 * mean:.2f}** |")
