"""`keras-vit probe`, `few-shot` and `vtab`: how well a checkpoint transfers to another dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from keras_vit_cli.inputs import check_model_and_dataset, check_weights
from keras_vit_cli.preprocessing_flags import AS_SAVED, AS_STATED, Loading, Preparation
from keras_vit_cli.words import BatchSize, DataDir, Dataset, Group, Model, Output, Split, TrainSplit


@dataclass(frozen=True)
class Probe:
    """Print the accuracy of simple classifiers on frozen features.

    They are k nearest neighbors, which vote by cosine similarity, and logistic regression, its penalty chosen on a
    held-out tenth of the training split.

    The model's own classes do not matter: its head is not used, and both splits have the classes of the dataset.
    Features are computed once and cached in ~/.keras/keras_vit/features. With a few images per class, use keras-vit
    few-shot.

    Args:
        neighbors: Numbers of neighbors that vote, one result each; numbers above that of training images are skipped.
    """

    model: Model
    dataset: Dataset
    train_split: TrainSplit = "train"
    split: Split = "test"
    group: Group = None
    data_dir: DataDir = None
    neighbors: tuple[int, ...] = (10, 20, 100)
    batch_size: BatchSize = 64
    preparation: Loading = AS_SAVED

    def run(self):
        """Evaluates and prints."""
        check_model_and_dataset(self.model, self.dataset)
        import numpy as np

        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.arrays import check_any
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation.features import extract_features
        from keras_vit.recipes.evaluation.probe import knn, linear_probe
        from keras_vit.recipes.recipe import Data
        from keras_vit_cli.conversion import converted_images

        dataset = open_dataset(
            Data(
                dataset=self.dataset,
                group=self.group,
                data_dir=self.data_dir,
                converted=converted_images(self.model, self.dataset),
            )
        )
        check_several_classes(dataset)
        model = self.preparation.load(self.model)
        (train, labels), (test, test_labels) = (
            extract_features(model, dataset, split, self.batch_size, max_corrupt=1.0, verbose=True)
            for split in (self.train_split, self.split)
        )
        for split, features in ((self.train_split, train), (self.split, test)):
            check_any(features, dataset, split)
        print(f"{len(train):,} training and {len(test):,} test images of {self.dataset}, {train.shape[1]} features")
        for count in self.neighbors:
            if count > len(train):
                print(f"{count:>3} nearest neighbors: skipped, {self.train_split!r} has {len(train):,} images")
                continue
            predicted = knn(train, labels, test, count)
            print(f"{count:>3} nearest neighbors: {np.mean(predicted == test_labels):.2%}")
        predicted, inverse_penalty = linear_probe(train, labels, test)
        print(f"linear: {np.mean(predicted == test_labels):.2%} (inverse penalty {inverse_penalty:g})")


@dataclass(frozen=True)
class FewShot:
    """Print the accuracy of ridge regression on a few images per class.

    The model's own classes do not matter: its head is not used, and both splits have the classes of the dataset.
    Features are computed once and cached in ~/.keras/keras_vit/features.

    Args:
        shots: Numbers of training images per class; a class with fewer contributes those that it has.
        seeds: Seeds of the choice of images.
        l2: L2 penalty on the weights.
        resizing: "big_vision" squashes images and crops 7 / 8 of the side; "weights" resizes them as the weights
            require.
    """

    model: Model
    dataset: Dataset
    train_split: TrainSplit = "train"
    split: Split = "test"
    group: Group = None
    data_dir: DataDir = None
    shots: tuple[int, ...] = (1, 5, 10, 25)
    seeds: tuple[int, ...] = (0, 1, 2)
    l2: float = 2.0**10
    resizing: Literal["big_vision", "weights"] = "big_vision"
    batch_size: BatchSize = 64
    preparation: Loading = AS_SAVED

    def run(self):
        """Evaluates and prints."""
        replaced = {"resize", "crop_fraction", "interpolation"} & self.preparation.single.keys()
        if replaced and self.resizing == "big_vision":
            raise ValueError("--resize, --crop-fraction and --interpolation require --resizing weights.")
        check_model_and_dataset(self.model, self.dataset)
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation import few_shot
        from keras_vit.recipes.recipe import Data
        from keras_vit_cli.conversion import converted_images

        data = Data(
            dataset=self.dataset,
            train_split=self.train_split,
            test_split=self.split,
            group=self.group,
            data_dir=self.data_dir,
            converted=converted_images(self.model, self.dataset),
        )
        recipe = few_shot.FewShot(data, self.shots, self.seeds, self.l2, self.batch_size, self.resizing)
        check_several_classes(open_dataset(data))  # before the model is loaded, which may print
        few_shot.few_shot(self.preparation.load(self.model), recipe, verbose=True, log=print)


@dataclass(frozen=True)
class Vtab:
    """Fine-tune on each task of VTAB-1k, as in Table 9 of the paper.

    --output is the folder of the runs and of vtab.json. Finished tasks in it are not run again, interrupted ones are
    resumed. Of the preparation of images, the mean and standard deviation can be chosen; the recipe sets the rest.

    Args:
        tasks: Run only these tasks; the means require all of them.
    """

    model: Model
    output: Output = Path("runs/vtab")
    data_dir: DataDir = None
    tasks: tuple[str, ...] = ()
    preparation: Preparation = AS_STATED

    def run(self):
        """Trains, and prints the table."""
        fields = self.preparation.fields() or {}
        if other := sorted(fields.keys() - {"mean", "std"}):
            raise ValueError(f"VTAB's recipe sets {', '.join(other)}. Expected --preprocessing imagenet or half.")
        check_weights(self.model)
        from keras_vit.recipes.configs.vtab import TASKS
        from keras_vit.recipes.evaluation.vtab import run_vtab

        result = run_vtab(self.model, self.output, data_dir=self.data_dir, tasks=self.tasks, **fields)
        print("\n| task | group | top-1, % |\n|---|---|---|")
        for name, top1 in result.tasks.items():
            print(f"| {TASKS[name].title} | {TASKS[name].group} | {100 * top1:.1f} |")
        for group, mean in result.means.items():
            print(f"| **mean** | {group} | **{100 * mean:.2f}** |")
