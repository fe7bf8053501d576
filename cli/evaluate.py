"""`keras-vit evaluate`: how good a model is on a data set, images prepared as its weights want them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.json_file import check_json


@dataclass(frozen=True)
class Evaluate:
    """Print accuracy, calibration error and more; every image counts once.

    Of data sets whose images have several right answers, as "imagenet2012_real", the top-1 is right if it is one of
    them, and images without any do not count. For ObjectNet, give the folder that has its folder "images":
    --dataset folder:/path/objectnet-1.0 --split images --objectnet-mapping /path/objectnet-1.0/mappings.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes.
        dataset: "digits", a name of TensorFlow Datasets, or "folder:/path" with /path/<split>/<class>/<image>.
        split: In TensorFlow Datasets' notation, such as "test" or "validation[:10%]".
        data_dir: Where prepared data sets are kept; by default TensorFlow Datasets' own place.
        batch_size: Images at a time.
        resize: Instead of the way that belongs to the weights: "squash" or "shortest" side, see `Preprocessing`.
        crop_fraction: Instead of the share that belongs to the weights.
        per_class: Also print a line for each class: its accuracy, and the class most often taken instead.
        json: Write everything, with the classes and the reliability diagram, into this file.
        objectnet_mapping: The folder "mappings" of ObjectNet, for its images and a model of ImageNet-1k.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    dataset: str
    split: str = "test"
    data_dir: str | None = None
    batch_size: int = 64
    resize: Literal["squash", "shortest"] | None = None
    crop_fraction: float | None = None
    per_class: bool = False
    json: Path | None = None
    objectnet_mapping: str | None = None

    def run(self):
        """Evaluates and prints."""
        check_json(self.json)
        import tensorflow as tf

        from keras_vit import load
        from keras_vit.recipes.data import class_names, open_dataset
        from keras_vit.recipes.evaluation.classification import Evaluation
        from keras_vit.recipes.recipe import Data
        from keras_vit.atomic_write import write_file

        model = load(self.weights)
        if tf.config.list_physical_devices("TPU"):  # Keras would compile for it, but the model is on the host
            model.jit_compile = False
        dataset = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir))
        if self.objectnet_mapping:
            classes, batches = self._objectnet(dataset)
        else:
            classes, batches = class_names(dataset), self._batches(dataset)
        if model.num_classes != len(classes):
            raise ValueError(
                f"{self.dataset!r} has {len(classes)} classes, but the model has {model.num_classes}. Fine-tune it on "
                "this data first."
            )
        changes = {"resize": self.resize, "crop_fraction": self.crop_fraction}
        changes = {name: value for name, value in changes.items() if value is not None}
        prepare = replace(model.preprocessing, **changes)
        evaluation = Evaluation(len(classes))
        for images, labels in batches:
            evaluation.update(model.predict_on_batch(prepare(images)), labels)
        summary, rows = evaluation.summary(), evaluation.per_class(classes)
        self._print(summary, rows, prepare)
        if self.json:
            run = {"weights": self.weights, "dataset": self.dataset, "split": self.split}
            run |= {"preprocessing": prepare.get_config(), **summary}
            found = {**run, "reliability": evaluation.reliability(), "classes": rows}
            write_file(self.json, json.dumps(found, indent=2) + "\n")

    def _batches(self, dataset):
        """Yields images and labels."""
        from keras_vit.recipes.data import decoded_images

        for images, labels in decoded_images(dataset, self.split, self.batch_size):
            if labels.ndim == 1 and labels.min() < 0:
                raise ValueError(f"The split {self.split!r} of {self.dataset!r} has no labels. Choose another split.")
            yield images, labels

    def _objectnet(self, dataset):
        """The classes of ImageNet-1k, and batches of the images that have one, with multi-hot labels."""
        from keras_vit.labels import imagenet_labels
        from keras_vit.recipes.data import class_names
        from keras_vit.recipes.evaluation.objectnet import objectnet_answers, overlapping_images

        answers = objectnet_answers(class_names(dataset), self.objectnet_mapping)
        batches = overlapping_images(self._batches(dataset), answers, self.batch_size)
        return [words for _, words in imagenet_labels()], batches

    def _print(self, summary, rows, prepare):
        print(f"{summary['images']:,} images of {self.dataset} ({self.split}), {prepare}")
        if summary["counted"] < summary["images"]:
            print(f"{summary['counted']:,} of them have a label and count")
        print(f"top-1 {summary['top1']:.2%}")
        if "top5" in summary:
            print(f"top-5 {summary['top5']:.2%}")
        print(f"calibration error {summary['calibration_error']:.2%}")
        print(f"negative log-likelihood {summary['negative_log_likelihood']:.4f}")
        if self.per_class:
            width = max(len("class"), *(len(row["class"]) for row in rows))
            print(f"\n{'class':{width}}  images  accuracy  most often taken for")
            for row in rows:
                taken = f"{row['confused_with']} ({row['confused']})" if row["confused"] else "-"
                print(f"{row['class']:{width}}  {row['images']:>8,}  {row['accuracy']:>8.2%}  {taken}")
