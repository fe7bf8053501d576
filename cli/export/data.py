"""Reads the images, labels and class names for `keras-vit export`. n images, H W pixels of the model."""

from dataclasses import dataclass

import numpy as np

from keras_vit.class_names.files import own_class_names, read_class_names

# Calibration images are sampled from the first ones only: reading all of a large dataset would take too long.
CALIBRATION_POOL = 5_000


@dataclass(frozen=True)
class ExportData:
    """Images in [0, 255] of the model's size, float32; None without a dataset.

    Args:
        calibration: (n, H, W, 3), if a format requires calibration.
        images, labels: Images of the parity check, (n, H, W, 3), and integer labels (n,).
        class_names: One name per class: those of the file in the options, else of the dataset, else of the run whose
            model is exported. None if there are none, or for a model without a head, unless a file was given.
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
        names = read_class_names(options.class_names) if options.class_names else None
        if options.dataset is None:
            return cls(class_names=names or own_class_names(options.weights, model.num_classes))
        from keras_vit.export.tflite.quantize import STATIC
        from keras_vit.recipes.data import class_names, count_examples, open_dataset
        from keras_vit.recipes.data.model_classes import check_model_classes, unlabeled
        from keras_vit.recipes.recipe import Data

        dataset = open_dataset(Data(dataset=options.dataset, data_dir=options.data_dir))
        if model.num_classes:
            check_model_classes(dataset, model.num_classes, options.weights)
        images, labels = _read_images(dataset, options.split, options.check_images, model.preprocessing)
        if model.num_classes and labels.min() < 0:
            raise unlabeled(dataset, options.split)
        calibration, split = None, options.calibration_split
        if any(name in STATIC for name in options.formats):
            total = min(CALIBRATION_POOL, count_examples(dataset, split))
            indices = np.random.default_rng(options.seed).permutation(total)[: options.calibration_images]
            calibration, _ = _read_images(dataset, split, len(indices), model.preprocessing, indices)
        return cls(calibration, images, labels, names or (class_names(dataset) if model.num_classes else None))


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
