"""The images and names that `keras-vit export` works with. n images, H W pixels of the model."""

from dataclasses import dataclass

import numpy as np

# Calibration images are drawn from so many: those of large data sets would all have to be read else.
DRAWN_FROM = 5_000


@dataclass(frozen=True)
class ExportData:
    """What a data set gives: arrays of pixels in [0, 255], of the model's size, float32; None without one.

    Args:
        calibration: (n, H, W, 3), if a format needs ranges.
        pixels, answers: Of the check, (n, H, W, 3) and class numbers (n,).
        labels: A name a class; None for a model without a head, unless a file was given.
    """

    calibration: np.ndarray | None = None
    pixels: np.ndarray | None = None
    answers: np.ndarray | None = None
    labels: list[str] | None = None

    @classmethod
    def read(cls, options, model) -> "ExportData":
        """Of an `Export`.

        Raises:
            ValueError: Labels, classes or splits do not go with the model.
        """
        labels = _labels(options.labels)
        if options.dataset is None:
            return cls(labels=labels)
        from keras_vit.export.tflite.quantize import STATIC
        from keras_vit.recipes.data import class_names, count_examples, open_dataset
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=options.dataset, data_dir=options.data_dir))
        names = class_names(dataset)
        if model.num_classes and model.num_classes != len(names):
            raise ValueError(
                f"{options.dataset!r} has {len(names)} classes, but the model has {model.num_classes}. Fine-tune it on "
                "this data first."
            )
        pixels, answers = _images(dataset, options.split, options.check_images, model.preprocessing)
        calibration, split = None, options.calibration_split
        if any(name in STATIC for name in options.formats):
            total = min(DRAWN_FROM, count_examples(dataset, split))
            numbers = np.random.default_rng(options.seed).permutation(total)[: options.calibration_images]
            calibration, _ = _images(dataset, split, len(numbers), model.preprocessing, numbers)
        return cls(calibration, pixels, answers, labels or (names if model.num_classes else None))


def _images(dataset, split, count, preprocessing, numbers=None):
    """The first images of a split, or of those with these numbers, and their labels."""
    from keras_vit.recipes.data import decoded_images

    images, answers = [], []
    for some, labels in decoded_images(dataset, split, max(1, min(64, count)), indices=numbers):
        images += [*_prepared(some, preprocessing)]
        answers += [*labels]
        if len(images) >= count:
            break
    return np.stack(images[:count]), np.array(answers[:count])


def _prepared(images, preprocessing):
    """Resized and cropped as the model wants it, but still pixels in [0, 255]: (n, H, W, 3) float32."""
    images = np.asarray(preprocessing(list(images)))
    mean, std = (255 * np.array(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    # Bicubic resizing overshoots; phones' images do not.
    return np.clip(images * std + mean, 0, 255)


def _labels(path):
    if path is None:
        return None
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error}. Expected a class name a line.") from error
    if not lines:
        raise ValueError(f"{path} is empty. Expected a class name a line, in the order of the model's outputs.")
    return lines
