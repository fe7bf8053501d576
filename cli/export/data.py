"""Reads the images, labels and class names for `keras-vit export`. n images, H W pixels of the model."""

from dataclasses import dataclass

import numpy as np

# Calibration images are sampled from the first ones only: reading all of a large dataset would take too long.
CALIBRATION_POOL = 5_000


@dataclass(frozen=True)
class ExportData:
    """Images in [0, 255] of the model's size, float32; None without a dataset.

    Args:
        calibration: (n, H, W, 3), if a format requires calibration.
        images, labels: Images of the parity check, (n, H, W, 3), and integer labels (n,).
        class_names: One name per class; None for a model without a head, unless a file was given.
    """

    calibration: np.ndarray | None = None
    images: np.ndarray | None = None
    labels: np.ndarray | None = None
    class_names: list[str] | None = None

    @classmethod
    def read(cls, options, model) -> "ExportData":
        """Reads the data that the options of an `Export` request.

        Raises:
            ValueError: Class names, classes or splits do not match the model.
        """
        names = _read_class_names(options.class_names)
        if options.dataset is None:
            return cls(class_names=names)
        from keras_vit.export.tflite.quantize import STATIC
        from keras_vit.recipes.data import class_names, count_examples, open_dataset
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=options.dataset, data_dir=options.data_dir))
        dataset_names = class_names(dataset)
        if model.num_classes and model.num_classes != len(dataset_names):
            raise ValueError(
                f"{options.dataset!r} has {len(dataset_names)} classes, but the model has {model.num_classes}. "
                "Fine-tune it on this data first."
            )
        images, labels = _read_images(dataset, options.split, options.check_images, model.preprocessing)
        calibration, split = None, options.calibration_split
        if any(name in STATIC for name in options.formats):
            total = min(CALIBRATION_POOL, count_examples(dataset, split))
            indices = np.random.default_rng(options.seed).permutation(total)[: options.calibration_images]
            calibration, _ = _read_images(dataset, split, len(indices), model.preprocessing, indices)
        return cls(calibration, images, labels, names or (dataset_names if model.num_classes else None))


def _read_images(dataset, split, count, preprocessing, indices=None):
    """The first images of a split, or those at the indices, and their labels."""
    from keras_vit.recipes.data import decoded_images

    images, labels = [], []
    for batch, batch_labels in decoded_images(dataset, split, max(1, min(64, count)), indices=indices):
        images += [*_resized(batch, preprocessing)]
        labels += [*batch_labels]
        if len(images) >= count:
            break
    return np.stack(images[:count]), np.array(labels[:count])


def _resized(images, preprocessing):
    """Resized and cropped by `preprocessing`, but still pixels in [0, 255]: (n, H, W, 3) float32."""
    images = np.asarray(preprocessing(list(images)))
    mean, std = (255 * np.array(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    # Bicubic resizing overshoots; the uint8 images of an app do not.
    return np.clip(images * std + mean, 0, 255)


def _read_class_names(path):
    if path is None:
        return None
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}. Expected one class name per line.") from error
    if not lines:
        raise ValueError(f"{path} is empty. Expected one class name per line, in the order of the model's outputs.")
    return lines
