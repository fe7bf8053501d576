"""`keras-vit few-shot`: few-shot accuracy of frozen features, without training."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from keras_vit_cli.evaluated_inputs import check_model_and_dataset
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation


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
        if not self.shots or min(self.shots) < 1:
            received = " ".join(map(str, self.shots)) or "none"
            raise ValueError(
                f"--shots must be one or more integers of at least 1, such as 1 5 10. Received: {received}"
            )
        if not self.seeds:
            raise ValueError("--seeds is empty. Pass at least one, such as 0 1 2.")
        if not 0 < self.l2 < math.inf:
            raise ValueError(f"--l2 must be a finite number above 0. Received: {self.l2}")
        check_model_and_dataset(self.weights, self.dataset)
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.model_classes import check_several_classes
        from keras_vit.recipes.evaluation import few_shot
        from keras_vit.recipes.recipe import Data

        data = Data(
            dataset=self.dataset, train_split=self.train_split, test_split=self.test_split, data_dir=self.data_dir
        )
        check_several_classes(open_dataset(data))  # before the model is loaded, which may print
        recipe = few_shot.FewShot(data, self.shots, self.seeds, self.l2, resizing=self.resizing)
        few_shot.few_shot(self.preparation.load(self.weights), recipe, verbose=True, log=print)
