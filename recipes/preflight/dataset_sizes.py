"""Number of classes and of training images of datasets that need not be present for a preflight."""

from keras_vit.recipes.data import class_names, count_examples, open_dataset
from keras_vit.recipes.data.digits import SPLITS
from keras_vit.recipes.data.image_dataset import split_ranges
from keras_vit.recipes.data.vtab import TASKS
from keras_vit.recipes.recipe import Data

# Section 4.1 of the paper; the classes of ImageNet-21k are those of the published checkpoints.
KNOWN_SIZES = {
    "imagenet2012": (1_000, 1_281_167),
    "imagenet2012_real": (1_000, 1_281_167),
    "tfrecord:gs://your-bucket/imagenet21k": (21_843, 14_197_122),
    "tfrecord:gs://your-bucket/jft": (18_291, 303_000_000),
    "cifar10": (10, 50_000),
    "cifar100": (100, 50_000),
    "oxford_iiit_pet": (37, 3_680),
    "oxford_flowers102": (102, 1_020),
    "digits": (10, SPLITS["train"]),
}


def dataset_size(data: Data) -> tuple[int, int]:
    """Number of classes and of images of the training split, such as "train[:98%]". Nothing is downloaded.

    Raises:
        ValueError: The dataset is neither known nor a local or remote folder or TFRecords, or the split is not a part
            of the training images.
    """
    if data.dataset in KNOWN_SIZES:
        num_classes, images = KNOWN_SIZES[data.dataset]
        ranges = split_ranges({"train": images}, data.train_split, data.dataset)
        return num_classes, sum(end - start for _, start, end in ranges)
    if data.dataset.startswith("vtab/") and (task := TASKS.get(data.dataset.removeprefix("vtab/"))):
        return task.num_classes, 1_000
    if data.dataset.startswith(("folder:", "csv:", "tfrecord:")):
        dataset = open_dataset(data)
        return len(class_names(dataset)), count_examples(dataset, data.train_split)
    raise ValueError(
        f"The size of the dataset {data.dataset!r} is unknown. Pass --num-classes, and --num-train-images for the "
        f"cost of the whole recipe. Known: {', '.join(name for name in KNOWN_SIZES if ':' not in name)}, vtab/<task>."
    )
