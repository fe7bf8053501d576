"""The pictures and names that `keras-vit export` works with. n pictures, H W pixels of the model."""

from dataclasses import dataclass

import numpy as np

# Calibration pictures are drawn from so many: more would have to be decoded for nothing.
DRAWN_FROM = 5_000


@dataclass(frozen=True)
class ExportData:
    """What a data set gives: arrays of pixels in [0, 255], of the model's size, float32; None without one.

    Args:
        calibration: (n, H, W, 3).
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
        from keras_vit.recipes.data import class_names, open_dataset
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=options.dataset, data_dir=options.data_dir))
        names = class_names(dataset)
        if model.num_classes and model.num_classes != len(names):
            raise ValueError(
                f"{options.dataset!r} has {len(names)} classes, but the model has {model.num_classes}. Fine-tune it on "
                "this data first."
            )
        pixels, answers = _pictures(dataset, options.split, options.check_images, model.preprocessing)
        calibration, _ = _pictures(dataset, options.calibration_split, DRAWN_FROM, model.preprocessing, lazily=True)
        chosen = np.random.default_rng(options.seed).permutation(len(calibration))[: options.calibration_images]
        calibration = _prepared([calibration[i] for i in sorted(chosen)], model.preprocessing)
        return cls(calibration, pixels, answers, labels or (names if model.num_classes else None))


def _pictures(dataset, split, count, preprocessing, lazily=False):
    """The first pictures of a split and their labels; `lazily`: as they were decoded."""
    from keras_vit.recipes.data import decoded_pictures

    pictures, answers = [], []
    for some, labels in decoded_pictures(dataset, split, min(64, count)):
        pictures += [*some] if lazily else [*_prepared(some, preprocessing)]
        answers += [*labels]
        if len(pictures) >= count:
            break
    if lazily:
        return pictures[:count], answers[:count]
    return np.stack(pictures[:count]), np.array(answers[:count])


def _prepared(pictures, preprocessing):
    """Resized and cropped as the model wants it, but still pixels in [0, 255]: (n, H, W, 3) float32."""
    images = np.asarray(preprocessing(list(pictures)))
    mean, std = (255 * np.array(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    # Bicubic resizing overshoots; phones' pictures do not.
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
