"""`keras-vit evaluate`: accuracy and calibration of a classifier on a dataset."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import tyro

from keras_vit.intervals import percent, wilson_interval
from keras_vit.weights.files import RECIPE
from keras_vit_cli.commands.report.command import TABLE, check_output, print_written
from keras_vit_cli.inputs import check_dataset, check_weights, is_exported
from keras_vit_cli.output_folder import check_table, json_output
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.words import BatchSize, DataDir, Dataset, Group, Json, MaxCorrupt, Model, Split


@dataclass(frozen=True)
class Evaluate:
    """Print the accuracy of a classifier, its calibration and more.

    MODEL is also a .tflite file, an .onnx file or a SavedModel of `keras-vit export`, or the .keras file of a model
    around one of keras_vit. Every image counts once.

    With several correct classes per image, as in "imagenet2012_real", the top-1 prediction is right if it is one of
    them, and images without a correct class do not count. The class names in the folder of a run (labels.txt) must be
    those of the dataset, in the same order. For ObjectNet, pass the folder that contains its folder
    "images": --dataset folder:/path/objectnet-1.0 --split images --objectnet-mapping /path/objectnet-1.0/mappings.

    ImageNet-V2, -A, -R and -Sketch, in the folders of their archives: --dataset folder:/path/imagenet-r --split
    train+test --imagenet-variant r. Of ImageNet-A and -R, predictions are among their 200 classes, as in their papers.

    Args:
        per_class: Also print a line for each class: its recall (sensitivity), which is the fraction of its images
            predicted right, and the class it is most confused with.
        objectnet_mapping: The folder "mappings" of ObjectNet, for its images and a model of ImageNet-1k.
        imagenet_variant: The dataset is ImageNet-V2, -A, -R or -Sketch, and the model one of ImageNet-1k.
        reference: Another model with the same classes, such as the one that was exported: also print the fraction of
            the images for which both predict the same class.
        predictions: Write a CSV file: of each image its file, label, prediction and the probability of each class.
        against: The images that the model was trained on, a dataset and its split such as folder:photos@train: names
            the images that are copies of these, or nearly so.
        report: Write an HTML page with these, see `keras-vit report`.
    """

    model: Model
    dataset: Dataset
    split: Split = "test"
    group: Group = None
    data_dir: DataDir = None
    batch_size: BatchSize = 64
    preparation: Loading = AS_SAVED
    per_class: bool = False
    json: Json = False
    objectnet_mapping: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    imagenet_variant: Literal["v2", "a", "r", "sketch"] | None = None
    max_corrupt: MaxCorrupt = 0.01
    reference: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    predictions: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    against: Annotated[str | None, tyro.conf.arg(metavar="DATASET@SPLIT")] = None
    report: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html")] = None

    def run(self):
        """Evaluates and prints."""
        check_weights(self.model)
        check_weights(self.reference)
        check_dataset(self.dataset, converts=True)
        if self.predictions:
            check_table(self.predictions, "--predictions")
        if self.report:
            check_output(self.report)
        if is_exported(self.model):
            self.preparation.check_stated(self.model)
        with json_output(self.json) as show, TemporaryDirectory() as temporary:
            copies = self._find_copies() if self.against else []
            table = self.predictions or (Path(temporary) / TABLE if self.report or self.group else None)
            report = self._evaluate(table)
            copied = {"copies": copies} if self.against else {}
            show(self._fields(report, table) | copied, lambda: self._print(report, table))
            if self.against:
                print(self._describe(copies, report))
            if self.report and table:
                self._write_report(table, self.report, report, [self._describe(copies, report)] if copies else [])

    def _evaluate(self, predictions: Path | None):
        from keras_vit.models.classification import check_no_projection
        from keras_vit.recipes.data.model_classes import with_model_classes
        from keras_vit.recipes.evaluation.classification import evaluate_classifier
        from keras_vit_cli.image_files import print_note_on_range

        dataset = self._open_dataset(self.dataset)
        model = self.preparation.open(self.model)
        check_no_projection(model)
        if dataset.stores_paths:
            names = dataset.read(self.split).as_numpy_iterator()
            print_note_on_range(model.preprocessing, (name.decode() for name, *_ in names))
        if not self.objectnet_mapping and not self.imagenet_variant:
            dataset = with_model_classes(dataset, model, self.model)
        return evaluate_classifier(
            model,
            dataset,
            self.split,
            batch_size=self.batch_size,
            objectnet_mapping=self.objectnet_mapping,
            imagenet_variant=self.imagenet_variant,
            max_corrupt=self.max_corrupt,
            reference=self._reference(),
            predictions=predictions,
            verbose=True,
        )

    def _open_dataset(self, name: str):
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.recipe import Data
        from keras_vit_cli.conversion import converted_images

        converted = converted_images(self.model, name)
        data = Data(name, group=self.group, data_dir=self.data_dir, max_corrupt=self.max_corrupt, converted=converted)
        return open_dataset(data)

    def _find_copies(self) -> list[tuple[str, str]]:
        from keras_vit_cli.copies import find_copies, hash_split

        training, _, split = str(self.against).rpartition("@")
        if not training:
            raise ValueError(
                f"--against is a dataset and its split, such as {self.dataset}@train. Received: {self.against}"
            )
        trained_on = self._open_dataset(training), split
        test = self._open_dataset(self.dataset), self.split
        return find_copies(*(hash_split(*images, self.max_corrupt) for images in (trained_on, test)))

    def _describe(self, copies, report) -> str:
        from keras_vit_cli.copies import describe_copies

        images = report.summary["images"]
        if not copies:
            return f"None of the {images:,} images is a copy of one of {self.against}"
        return f"Warning: {describe_copies(copies, images)}"

    def _write_report(self, predictions: Path, path: Path, report, notes: list[str]):
        from keras_vit.recipes.data.corrupt_images import skipped_images
        from keras_vit.recipes.evaluation.predictions import read_predictions
        from keras_vit_cli.commands.report.report import write_report

        write_report(
            path,
            f"{self.model} on {self.dataset} ({self.split})",
            read_predictions(predictions),
            notes=notes,
            skipped=skipped_images(self.dataset),
            run=self.model,
            model=None if is_exported(self.model) else self.preparation.open(self.model),
            pixel_range=report.preprocessing.pixel_range,
        )
        print_written(path)

    def _reference(self):
        if self.reference is None:
            return None
        return (AS_SAVED if is_exported(self.reference) else self.preparation).open(self.reference)

    def _fields(self, report, table) -> dict:
        """The content of --json."""
        from keras_vit.recipes.evaluation.predictions import read_predictions

        result: dict = {"model": self.model, "dataset": self.dataset, "split": self.split}
        result |= {"skipped": report.skipped, "preprocessing": report.preprocessing.get_config(), **report.summary}
        if "top1" in report.summary:
            right = round(report.summary["top1"] * report.summary["counted"])
            result["top1_interval"] = (  # 95 %
                read_predictions(table).accuracy_interval()
                if self.group
                else wilson_interval(right, report.summary["counted"])
            )
        result |= {"reliability": report.reliability, "classes": report.per_class}
        if report.confusion_matrix is not None:  # rows are the correct classes
            result |= {"class_names": report.class_names, "confusion_matrix": report.confusion_matrix.tolist()}
        return result

    def _print(self, report, table):
        from keras_vit.recipes.evaluation.classification_metrics import BINS
        from keras_vit.recipes.evaluation.predictions import read_predictions

        summary = report.summary
        is_multi_label = "mean_average_precision" in summary
        print(f"{summary['images']:,} images of {self.dataset} ({self.split}), {report.preprocessing}")
        if self._is_part():
            print("The folder has no splits: about a fifth of it is 'test'. For all images pass --split train+test")
        if group := self._unused_group():
            print(f"Note: the run was split with --group {shlex.quote(group)}. Without it, the test images are others.")
        if report.skipped:
            print(f"{report.skipped:,} more cannot be decoded and do not count")
        if summary["counted"] < summary["images"]:
            does = (
                "have a label; the others count, too, as images of no class"
                if is_multi_label
                else "have a label and count"
            )
            print(f"{summary['counted']:,} of them {does}")
        if "agreement" in summary:
            print(f"agreement with {self.reference} {summary['agreement']:.2%}")
        if is_multi_label:
            self._print_precisions(report)
            return
        for metric, name in (("top1", "top-1"), ("top5", "top-5")):
            if metric == "top1" and self.group:
                print(f"top-1 {', '.join(read_predictions(table).describe_accuracy())}")
            elif metric in summary:
                print(f"{name} {percent(round(summary[metric] * summary['counted']), summary['counted'])}")
        print(f"expected calibration error ({BINS} bins) {summary['calibration_error']:.2%}")
        if "negative_log_likelihood" in summary:
            print(f"negative log-likelihood {summary['negative_log_likelihood']:.4f}")
        if "majority" in summary:
            largest = max(report.per_class, key=lambda row: row["images"])["class"]
            matrix, absent = report.confusion_matrix, ""
            if matrix is not None and (count := int((matrix.any(0) & ~matrix.any(1)).sum())):
                absent = f", in which {count:,} predicted classes without images are 0"
            print(f"balanced accuracy {summary['balanced_accuracy']:.2%}, macro F1 {summary['macro_f1']:.2%}{absent}")
            print(f"always {largest!r} would be top-1 {summary['majority']:.2%}")
        if self.per_class:
            width = max(len("class"), *(len(row["class"]) for row in report.per_class))
            print(f"\n{'class':{width}}  images   recall  most confused with")
            for row in report.per_class:
                confused_with = f"{row['confused_with']} ({row['confused']})" if row["confused"] else "-"
                print(f"{row['class']:{width}}  {row['images']:>6,}  {row['accuracy']:>7.2%}  {confused_with}")

    def _unused_group(self) -> str | None:
        """The --group of the run that the model is of, if the images are the same and it is not passed."""
        folder = Path(self.model)
        file = (folder if folder.is_dir() else folder.parent) / RECIPE
        if self.group or not file.is_file():
            return None
        data = json.loads(file.read_text("utf-8")).get("data", {})
        group = data.get("group") if data.get("dataset") == self.dataset else None
        beside = file.parent / Path(group or "").name  # a table in the folder of a run that may have been moved
        return str(beside) if beside.is_file() else group

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
