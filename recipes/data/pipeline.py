"""The input pipeline: a dataset's training and evaluation batches. B batch, H W pixels, C classes.

Training: select, cache, shuffle files and images, transform each image (transforms.py), batch (corrupt_images.py),
mixup (mixing.py). All randomness comes from (seed, epoch) and (seed, index of the image in the run), so a run can be
repeated, and batch i is the same whether earlier ones were drawn or `start_step` skips them.
"""

from functools import lru_cache, partial

import numpy as np
import tensorflow as tf

from keras_vit.images.pixel_range import PIXELS
from keras_vit.recipes.data.arrays import decode_examples, decode_stored, indices_by_class, read_labels
from keras_vit.recipes.data.corrupt_images import batch_valid_images, replace_corrupt, zero_weight_corrupt
from keras_vit.recipes.data.image_dataset import ImageDataset, count_nonempty
from keras_vit.recipes.data.mixing import mixup_or_cutmix
from keras_vit.recipes.data.transforms import evaluation_transform, training_transform
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import RecipeError

ONE_HOST = (0, 1)


def training_pixels(
    data: Data, dataset: ImageDataset, seed: int, start_step: int = 0, host: tuple[int, int] = ONE_HOST, augment=None
) -> tf.data.Dataset:
    """Endless training batches ((B, H, W, 3) float32 in [0, 255], labels), shuffled, cropped, flipped and augmented.

    Labels are (B,) int64, or (B, C) float32 of a multi-label dataset.

    Args:
        data: Field `data` of the recipe.
        dataset: From `open_dataset`.
        seed: Determines the order and all other randomness.
        start_step: Index of the first batch.
        host: (i, n): the i-th of n equal parts of each batch, for one of n machines; only that part is decoded.
        augment: A further augmentation, see `keras_vit.recipes.train`.

    Raises:
        ValueError: The split is unknown or empty, or has fewer images of a class than `data.labels_per_class`.
    """
    batches = _training_batches(data, dataset, seed, start_step, host, **PIXELS, augment=augment)
    # Bicubic values and the noise of erasing may be outside of [0, 255].
    batches = batches.map(lambda images, labels: (tf.clip_by_value(images, 0.0, 255.0), labels), tf.data.AUTOTUNE)
    return _prefetch(data, batches)


def training_batches(
    data: Data, dataset: ImageDataset, seed: int, start_step: int = 0, host: tuple[int, int] = ONE_HOST, augment=None
) -> tf.data.Dataset:
    """Like `training_pixels`, with images normalized by `data.mean` and `data.std`, and with mixup and CutMix.

    With either, labels are (B, C) float32; images are mixed within the host's part of the batch.
    """
    batches = _training_batches(data, dataset, seed, start_step, host, data.mean, data.std, augment)
    if data.augment.mixes:

        def mix(step, batch):
            images, labels = batch
            labels = labels if dataset.multi_label else tf.one_hot(labels, len(dataset.class_names))  # (B, C)
            # -1 - seed: keys of batches differ from those of images.
            key = tf.stack([tf.constant(-1 - seed, tf.int64), 4 * step])
            return mixup_or_cutmix(images, labels, data.augment, key)

        batches = batches.enumerate(start_step).map(mix, tf.data.AUTOTUNE)
    return _prefetch(data, batches)


def weight_classes(batches: tf.data.Dataset, weights: np.ndarray) -> tf.data.Dataset:
    """Adds the weight of each image to training batches: (images, labels, (B,) float32).

    Args:
        weights: (C,), of the classes. A mixed image has the mean of the weights of its classes.
    """
    weights = tf.constant(weights, tf.float32)

    def weigh(images, labels):
        if labels.shape.rank == 2:
            return images, labels, tf.linalg.matvec(labels, weights)
        return images, labels, tf.gather(weights, tf.maximum(labels, 0))  # an image without a label has no loss

    return batches.map(weigh, tf.data.AUTOTUNE)


def evaluation_batches(
    data: Data, dataset: ImageDataset, split: str, host: tuple[int, int] = ONE_HOST
) -> tf.data.Dataset:
    """Every image once, in order: ((B, H, W, 3) float32, labels, (B,) float32 weights).

    Images are prepared as `keras_vit.Preprocessing` of the recipe's fields does. The last batch is padded with images
    of weight 0, so that shapes are static and every image counts once; a corrupt image has weight 0 too. The weight of
    all others makes Keras's mean loss that of the images if none is corrupt, see `zero_weight_corrupt`.
    """
    total = count_nonempty(dataset, split)
    transform = evaluation_transform(data)

    def prepare(index, stored):
        return transform(decode_stored(dataset, stored))

    size = _host_batch_size(data, host)
    batches = batch_valid_images(dataset.read(split).enumerate(), data.batch_size, prepare, host[0], size)
    batches = zero_weight_corrupt(batches, size, total, data, host[1])
    # Without a cardinality Keras warns at the end of the data.
    batches = batches.apply(tf.data.experimental.assert_cardinality(-(-total // data.batch_size)))
    return _shard_by_data(batches.prefetch(tf.data.AUTOTUNE))


def evaluation_arrays(data: Data, dataset: ImageDataset, split: str) -> tuple[np.ndarray, np.ndarray]:
    """A whole split in memory: images (n, H, W, 3) float32 and labels (n,) or (n, C), for small data."""
    batches = list(evaluation_batches(data, dataset, split).as_numpy_iterator())
    images, labels, weights = (np.concatenate(arrays) for arrays in zip(*batches))
    return images[weights > 0], labels[weights > 0]


def count_training_images(data: Data, dataset: ImageDataset, split: str) -> int:
    """Number of images of a split that training uses; raises ValueError if it has none, see `labels_per_class`."""
    total = count_nonempty(dataset, split)
    return data.labels_per_class * len(dataset.class_names) if data.labels_per_class else total


def _in_fixed_order(data, dataset, seed):
    """The training examples in the order of the split, decoded if they are to be cached."""
    examples = dataset.read(data.train_split)
    if data.labels_per_class:
        selected = tf.constant(_select_per_class(dataset, data.train_split, data.labels_per_class, seed))
        examples = examples.enumerate().filter(lambda i, _: selected[i]).map(lambda _, example: example)
    return decode_examples(dataset, examples) if data.cache else examples


def _training_batches(data, dataset, seed, start_step, host, mean, std, augment):
    size = _host_batch_size(data, host)
    total = count_training_images(data, dataset, data.train_split)
    ordered = _in_fixed_order(data, dataset, seed)
    if dataset.read_shuffled and not (data.labels_per_class or data.cache):  # which require a fixed order of the files
        read = partial(dataset.read_shuffled, data.train_split)
    else:
        examples = ordered.cache() if data.cache else ordered
        read = lambda seed: examples  # noqa: E731
    first = start_step * data.batch_size
    first_image, first_copy = divmod(first, data.augment.repeats)
    epoch, skipped = divmod(first_image, total)
    # TensorFlow allocates the buffer at once; a larger one than the data draws the same order.
    shuffled = _shuffle_and_repeat(read, min(data.shuffle_images, total), seed, epoch).skip(skipped)
    if data.augment.repeats > 1:
        copies = shuffled.flat_map(lambda *image: tf.data.Dataset.from_tensors(image).repeat(data.augment.repeats))
        shuffled = copies.skip(first_copy)
    transform = training_transform(data, seed, mean, std, dataset.max_value, augment)

    def prepare(index, image):
        return transform(index, tf.io.read_file(image) if dataset.stores_paths and not data.cache else image)

    batches = batch_valid_images(shuffled.enumerate(first), data.batch_size, prepare, host[0], size)
    fallback = ordered.enumerate().map(lambda index, example: (prepare(index, example[1]), example[2]))
    return replace_corrupt(batches, size, total, data, fallback, host[1])


@lru_cache(maxsize=1)  # a run asks several times
def _select_per_class(dataset, split, labels_per_class, seed) -> np.ndarray:
    """(n,) booleans: whether each image of the split is one of `labels_per_class` chosen ones of its class."""
    labels = read_labels(dataset, split)
    selected = np.zeros(len(labels), bool)
    random = np.random.default_rng(seed)
    for name, members in zip(dataset.class_names, indices_by_class(labels, len(dataset.class_names)), strict=True):
        if len(members) < labels_per_class:
            raise RecipeError(
                f"Class {name!r} has {len(members)} images in {split!r}.",
                {"data.labels_per_class": labels_per_class},
                {"data.labels_per_class": len(members)},
            )
        selected[random.choice(members, labels_per_class, replace=False)] = True
    return selected


def _shuffle_and_repeat(read, buffer_images, seed, first_epoch):
    """Epoch after epoch, each in an order drawn from (seed, epoch): that of the files, then that in the buffer.

    `shuffle().repeat()` would also depend on how many iterators were created before.
    """

    def epoch(index):
        tf.random.set_seed(1)  # of this graph only: `shuffle` combines its seed with the program's global one
        epoch_seed = seed * 1_000_003 + index
        return read(epoch_seed).shuffle(buffer_images, seed=epoch_seed, reshuffle_each_iteration=False)

    # Unlike a counter, a range can be split among the workers of a tf.data service.
    return tf.data.Dataset.range(first_epoch, np.iinfo("int64").max).flat_map(epoch)


def _host_batch_size(data, host):
    size, machines = data.batch_size, host[1]
    if size % machines:
        raise RecipeError(
            f"A batch must be divisible by the number of machines, {machines}.",
            {"data.batch_size": size},
            {"data.batch_size": -(-size // machines) * machines},
        )
    return size // machines


def _prefetch(data, batches):
    """Prepares batches ahead of the model, here or by a tf.data service.

    A service distributes epochs among its workers: each image comes once an epoch, but batches come in the order in
    which they are ready, so that such a run cannot be repeated exactly.
    """
    if data.service:
        policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        batches = batches.apply(tf.data.experimental.service.distribute(policy, data.service))
    return _shard_by_data(batches.prefetch(tf.data.AUTOTUNE))


def _shard_by_data(batches):
    """Each worker takes every n-th batch's part; datasets of few files cannot be sharded by file."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.deterministic = True
    return batches.with_options(options)
