"""`keras-vit evaluate`: accuracy and calibration of a classifier on a dataset."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.inputs import check_dataset, check_weights, is_exported
from keras_vit_cli.output_folder import check_json
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation


@dataclass(frozen=True)
class Evaluate:
    """Print accuracy, calibration error and more. Images are prepared as the weights require; every image counts once.

    With several correct classes per image, as in "imagenet2012_real", the top-1 prediction is right if it is one of
    them, and images without a correct class do not count. The class names in the folder of a run (labels.txt) must be
    those of the dataset, in the same order. For ObjectNet, pass the folder that contains its folder
    "images": --dataset folder:/path/objectnet-1.0 --split images --objectnet-mapping /path/objectnet-1.0/mappings.

    ImageNet-V2, -A, -R and -Sketch, in the folders of their archives: --dataset folder:/path/imagenet-r --split
    train+test --imagenet-variant r. Of ImageNet-A and -R, predictions are among their 200 classes, as in their papers.

    Args:
        weights: File, folder or name, as for `keras_vit.load`; also a .tflite file, an .onnx file or a SavedModel of
            `keras-vit export`.
        dataset: "digits", a name of TensorFlow Datasets, "folder:/path" with /path/<split>/<class>/<image> or
            /path/<class>/<image>, or "csv:/path" with /path/<split>.csv, several labels per image.
        split: In TensorFlow Datasets' notation, such as "test" or "validation[:10%]".
        data_dir: Folder of prepared datasets; by default that of TensorFlow Datasets.
        batch_size: Number of images at a time.
        preparation: How images are prepared, if it is not as the weights state.
        per_class: Also print a line for each class: its accuracy, and the class it is most confused with.
        json: Write all metrics, with the classes, the confusion matrix (rows are the correct classes, in the order of
            "class_names") and the reliability diagram, to this file.
        objectnet_mapping: The folder "mappings" of ObjectNet, for its images and a model of ImageNet-1k.
        imagenet_variant: The dataset is ImageNet-V2, -A, -R or -Sketch, and the model one of ImageNet-1k.
        max_corrupt: Largest allowed fraction of images that cannot be decoded; they are named and do not count.
        reference: Another model with the same classes, such as the one that was exported: also print the fraction of
            the images for which both predict the same class.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: str
    split: str = "test"
    data_dir: str | None = None
    batch_size: int = 64
    preparation: Preparation = AS_STATED
    per_class: bool = False
    json: Path | None = None
    objectnet_mapping: str | None = None
    imagenet_variant: Literal["v2", "a", "r", "sketch"] | None = None
    max_corrupt: float = 0.01
    reference: str | None = None

    def run(self):
        """Evaluates and prints."""
        check_json(self.json)
        check_weights(self.weights)
        check_weights(self.reference)
        check_dataset(self.dataset)
        if self.preparation.fields() and is_exported(self.weights):
            raise ValueError(f"{self.weights} has its own preprocessing. Export the model again with it.")
        from keras_vit.atomic_write import write_file
        from keras_vit.classification import check_no_projection
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.data.model_classes import with_model_classes
        from keras_vit.recipes.evaluation.classification import evaluate_classifier
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir, max_corrupt=self.max_corrupt))
        model = self._load(self.weights)
        check_no_projection(model)
        if not self.objectnet_mapping and not self.imagenet_variant:
            dataset = with_model_classes(dataset, model, self.weights)
        report = evaluate_classifier(
            model,
            dataset,
            self.split,
            batch_size=self.batch_size,
            objectnet_mapping=self.objectnet_mapping,
            imagenet_variant=self.imagenet_variant,
            max_corrupt=self.max_corrupt,
            reference=self._load(self.reference) if self.reference else None,
        )
        self._print(report)
        if self.json:
            result = {"weights": self.weights, "dataset": self.dataset, "split": self.split}
            result |= {"skipped": report.skipped, "preprocessing": report.preprocessing.get_config(), **report.summary}
            result |= {"reliability": report.reliability, "classes": report.per_class}
            if report.confusion_matrix is not None:
                matrix = report.confusion_matrix.tolist()
                result |= {"class_names": report.class_names, "confusion_matrix": matrix}
            write_file(self.json, json.dumps(result, indent=2) + "\n")

    def _load(self, weights):
        if not is_exported(weights):
            return self.preparation.load(weights)
        from keras_vit.export.exported import open_exported

        return open_exported(weights)

    def _print(self, report):
        summary = report.summary
        print(f"{summary['images']:,} images of {self.dataset} ({self.split}), {report.preprocessing}")
        if self._is_part():
            print("The folder has no splits: a fifth of each class is 'test'. For all images pass --split train+test")
        if report.skipped:
            print(f"{report.skipped:,} more cannot be decoded and do not count")
        if summary["counted"] < summary["images"]:
            print(f"{summary['counted']:,} of them have a label and count")
        if "agreement" in summary:
            print(f"agreement with {self.reference} {summary['agreement']:.2%}")
        if "mean_average_precision" in summary:
            self._print_precisions(report)
            return
        print(f"top-1 {summary['top1']:.2%}")
        if "top5" in summary:
            print(f"top-5 {summary['top5']:.2%}")
        print(f"calibration error {summary['calibration_error']:.2%}")
        if "negative_log_likelihood" in summary:
            print(f"negative log-likelihood {summary['negative_log_likelihood']:.4f}")
        if "majority" in summary:
            largest = max(report.per_class, key=lambda row: row["images"])["class"]
            print(f"balanced accuracy {summary['balanced_accuracy']:.2%}, macro F1 {summary['macro_f1']:.2%}")
            print(f"always {largest!r} would be top-1 {summary['majority']:.2%}")
        if self.per_class:
            width = max(len("class"), *(len(row["class"]) for row in report.per_class))
            print(f"\n{'class':{width}}  images  accuracy  most confused with")
            for row in report.per_class:
                confused_with = f"{row['confused_with']} ({row['confused']})" if row["confused"] else "-"
                print(f"{row['class']:{width}}  {row['images']:>6,}  {row['accuracy']:>8.2%}  {confused_with}")

    def _is_part(self):
        """Whether the split is a part of the images of a folder without splits."""
        folder = Path(self.dataset.removeprefix("folder:")).expanduser()
        is_folder = self.dataset.startswith("folder:") and folder.is_dir()
        return is_folder and self.split in ("train", "test") and not (folder / self.split).is_dir()

    def _print_precisions(self, report):
        print(f"mean average precision {report.summary['mean_average_precision']:.2%}")
        if self.per_class:
            width = max(len("class"), *(len(row["class"]) for row in report.per_class))
            print(f"\n{'class':{width}}  images  average precision")
            for row in report.per_class:
                print(f"{row['class']:{width}}  {row['images']:>6,}  {row['average_precision']:>17.2%}")
