"""From a data set's name to batches. B batch, H W pixels. Pixels stay in [0, 255] until the model's range is applied.

All randomness comes from (seed, number of the example), so a run can be repeated.
"""

from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.images import normalize
from keras_vit.recipes.digits import Digits
from keras_vit.recipes.recipe import Data


def open_dataset(data: Data):
    """Returns the TensorFlow Datasets builder of a recipe's data, prepared.

    Raises:
        ValueError: The data set is unknown, the folder is not laid out as expected, or a split is missing.
    """
    if data.dataset.startswith("folder:"):
        builder = _open_folder(Path(data.dataset.removeprefix("folder:")))
    else:
        try:
            named = Digits if data.dataset == "digits" else partial(tfds.builder, data.dataset)
            builder = named(data_dir=data.data_dir)
        except tfds.core.DatasetNotFoundError as error:
            raise ValueError(
                f"TensorFlow Datasets knows no data set {data.dataset!r}. Use 'digits', a name of "
                "https://www.tensorflow.org/datasets/catalog, or 'folder:/path' with /path/<split>/<class>/<picture>."
            ) from error
        builder.download_and_prepare()
    if not {"image", "label"} <= set(builder.info.features or ()):
        raise ValueError(
            f"The data set {data.dataset!r} has the features {sorted(builder.info.features or ())}; "
            "'image' and 'label' are needed."
        )
    return builder


def count_examples(builder, split: str) -> int:
    """Number of pictures of a split; raises ValueError with the splits there are if it is unknown."""
    try:
        return builder.info.splits[split].num_examples
    except (KeyError, ValueError) as error:
        raise ValueError(f"No split {split!r} in {builder.name}. Splits: {', '.join(builder.info.splits)}") from error


def class_names(builder) -> list[str]:
    """Names of the classes, in the order of their numbers."""
    return list(builder.info.features["label"].names)


def training_pixels(data: Data, builder, seed: int, start_step: int = 0) -> tf.data.Dataset:
    """Endless training batches ((B, H, W, 3) float32 in [0, 255], (B,) int64 labels), shuffled, cropped and flipped.

    Batch i is the same whether earlier ones were drawn or `start_step` skips them.
    """
    examples = _encoded(data, builder, data.train_split, seed)
    cropped = data.min_crop_area < 1.0

    def decoded(examples):
        examples = examples.map(_decoder(builder), tf.data.AUTOTUNE)
        return examples if cropped else examples.map(_resize_to(data.image_size), tf.data.AUTOTUNE)

    if data.cache:
        examples = decoded(examples).cache()
    first = start_step * data.batch_size
    epoch, within = divmod(first, _count_training_examples(data, builder))
    examples = _shuffled_forever(examples, data.shuffle_images, seed, epoch).skip(within)
    if not data.cache:  # the shuffle buffer holds files then, a tenth of the pixels, and what is skipped is not decoded
        examples = decoded(examples)
    if cropped or data.flip:
        examples = examples.enumerate(first).map(_augmentation(data, seed), tf.data.AUTOTUNE)
    return _distributable(examples.batch(data.batch_size, drop_remainder=True))


def training_batches(data: Data, builder, seed: int, start_step: int = 0) -> tf.data.Dataset:
    """As `training_pixels`, with pictures in the model's range [-1, 1]."""
    pixels = training_pixels(data, builder, seed, start_step)
    return pixels.map(lambda images, labels: (normalize(images), labels), tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def evaluation_batches(data: Data, builder, split: str) -> tf.data.Dataset:
    """Every picture once, in order: ((B, H, W, 3) float32 in [-1, 1], (B,) labels, (B,) float32 weights).

    The last batch is filled up with black pictures of weight 0, so that shapes are static and every picture counts
    once.
    """
    examples = _decoded(data, builder, split).map(_resize_to(data.image_size), tf.data.AUTOTUNE)
    examples = examples.map(lambda image, label: (image, label, 1.0))
    padding = -count_examples(builder, split) % data.batch_size
    if padding:
        blank = tf.data.Dataset.from_tensors(
            (tf.zeros((data.image_size, data.image_size, 3)), tf.zeros((), tf.int64), 0.0)
        )
        examples = examples.concatenate(blank.repeat(padding))
    batches = examples.batch(data.batch_size, drop_remainder=True)
    batches = batches.map(lambda images, labels, weights: (normalize(images), labels, weights), tf.data.AUTOTUNE)
    return _distributable(batches.prefetch(tf.data.AUTOTUNE))


def evaluation_arrays(data: Data, builder, split: str) -> tuple[np.ndarray, np.ndarray]:
    """A whole split in memory: (n, H, W, 3) float32 in [-1, 1] and (n,) labels, for small data."""
    batches = list(evaluation_batches(data, builder, split).as_numpy_iterator())
    images, labels, weights = (np.concatenate(parts) for parts in zip(*batches))
    return images[weights > 0], labels[weights > 0]


def decoded_pictures(builder, split: str, batch_size: int):
    """Yields lists of up to `batch_size` pictures, (H, W, 3) uint8 of any size, and labels; each picture once."""
    if not count_examples(builder, split):
        raise ValueError(f"The split {split!r} of {builder.name} has no pictures.")
    pictures, labels = [], []
    examples = builder.as_dataset(split, shuffle_files=False)
    for image, label in examples.map(lambda example: (_rgb(example["image"]), example["label"])).as_numpy_iterator():
        pictures.append(image)
        labels.append(int(label))
        if len(pictures) == batch_size:
            yield pictures, np.array(labels)
            pictures, labels = [], []
    if pictures:
        yield pictures, np.array(labels)


def _open_folder(path: Path):
    if not path.is_dir() or not any(path.glob("*/*/*")):
        raise ValueError(
            f"{path.absolute()} is not laid out as /path/<split>/<class>/<picture>, for example train/cat/1.jpg and "
            "test/cat/2.jpg."
        )
    return tfds.ImageFolder(str(path))


def _decoded(data: Data, builder, split: str) -> tf.data.Dataset:
    """(image uint8 (H, W, 3), label) of a split; with `labels_per_class`, of the chosen pictures only."""
    return _encoded(data, builder, split, 0).map(_decoder(builder), tf.data.AUTOTUNE)


def _decoder(builder):
    decode = builder.info.features["image"].decode_example
    return lambda image, label: (_rgb(decode(image)), label)


def _encoded(data: Data, builder, split: str, seed: int) -> tf.data.Dataset:
    """(image as in its file, label) of a split; with `labels_per_class`, of the chosen pictures only."""
    count_examples(builder, split)
    examples = builder.as_dataset(split, decoders={"image": tfds.decode.SkipDecoding()}, shuffle_files=False)
    if data.labels_per_class and split == data.train_split:
        chosen = tf.constant(_chosen(builder, split, data.labels_per_class, seed))
        examples = examples.enumerate().filter(lambda i, _: chosen[i]).map(lambda _, example: example)
    return examples.map(lambda example: (example["image"], example["label"]))


def _chosen(builder, split, labels_per_class, seed) -> np.ndarray:
    """A boolean for each picture of the split: whether it is one of its class's chosen ones."""
    examples = builder.as_dataset(split, decoders={"image": tfds.decode.SkipDecoding()}, shuffle_files=False)
    labels = np.array([int(label) for label in examples.map(lambda example: example["label"]).as_numpy_iterator()])
    chosen = np.zeros(len(labels), bool)
    random = np.random.default_rng(seed)
    for number, name in enumerate(class_names(builder)):
        members = np.flatnonzero(labels == number)
        if len(members) < labels_per_class:
            raise ValueError(
                f"labels_per_class={labels_per_class}, but class {name!r} has {len(members)} pictures in {split!r}."
            )
        chosen[random.choice(members, labels_per_class, replace=False)] = True
    return chosen


def _count_training_examples(data, builder):
    if data.labels_per_class:
        return data.labels_per_class * len(class_names(builder))
    return count_examples(builder, data.train_split)


def _shuffled_forever(examples, buffer_images, seed, first_epoch):
    """Epoch after epoch, in an order drawn from (seed, epoch); `shuffle().repeat()` also counts former iterators."""

    def epoch(number):
        tf.random.set_seed(1)  # of this graph only: `shuffle` would mix the program's global seed in
        return examples.shuffle(buffer_images, seed=seed * 1_000_003 + number, reshuffle_each_iteration=False)

    return tf.data.Dataset.counter(first_epoch).flat_map(epoch)


def _rgb(image):
    image = tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image[..., :3]
    return tf.ensure_shape(image, (None, None, 3))  # (H, W, 3)


def _resize_to(size):
    return lambda image, label: (tf.image.resize(image, (size, size)), label)  # (size, size, 3) float32


def _augmentation(data: Data, seed: int):
    """The Inception crop of the paper's code (aspect 3/4 to 4/3, bilinear), a flip, keyed by the picture's number."""

    def augment(number, example):
        image, label = example
        key = tf.stack([tf.constant(seed, tf.int64), number])
        if data.min_crop_area < 1.0:
            begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
                tf.shape(image),
                tf.zeros((1, 0, 4)),
                key,
                area_range=(data.min_crop_area, 1.0),
                use_image_if_no_bounding_boxes=True,
            )
            cropped = tf.ensure_shape(tf.slice(image, begin, size), (None, None, 3))
            image = tf.image.resize(cropped, (data.image_size, data.image_size))  # (size, size, 3)
        if data.flip:
            image = tf.image.stateless_random_flip_left_right(image, key + 1)
        return image, label

    return augment


def _distributable(batches):
    """Each worker takes every n-th batch's part; data sets of few files cannot be split by file."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.deterministic = True
    return batches.with_options(options)
