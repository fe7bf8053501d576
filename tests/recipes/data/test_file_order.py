"""The order of the files of TFRecords in each epoch; TensorFlow Datasets and others."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from images_on_disk import int64_feature, jpeg, write_record

from keras_vit.recipes.data import open_dataset, training_pixels
from keras_vit.recipes.prepare.builder import SizedShards
from keras_vit.recipes.recipe import Data

FILES, IMAGES_PER_FILE = 6, 4
pytestmark = pytest.mark.slow


class Sorted(tfds.core.GeneratorBasedBuilder):
    """Each class in files of its own."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self):
        image, label = tfds.features.Image(shape=(None, None, 3)), tfds.features.ClassLabel(num_classes=FILES)
        features = tfds.features.FeaturesDict({"image": image, "label": label})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        images = [np.full((9, 11, 3), 10 * key, "uint8") for key in range(FILES * IMAGES_PER_FILE)]
        return {"train": [(i, {"image": image, "label": i // IMAGES_PER_FILE}) for i, image in enumerate(images)]}

    def _generate_examples(self):
        raise NotImplementedError


@pytest.fixture(params=["plain", "tfds"])
def records(request, tmp_path):
    """Six files of four images, sorted by class."""
    if request.param == "tfds":
        builder = Sorted(data_dir=tmp_path)
        builder.download_and_prepare(download_config=SizedShards(max_shard_size=600))
        assert len(builder.info.splits["train"].filenames) >= 3
        return Data(dataset=f"tfrecord:{builder.data_dir}")
    (tmp_path / "labels.txt").write_text("".join(f"{name}\n" for name in range(FILES)))
    for shard in range(FILES):
        with tf.io.TFRecordWriter(f"{tmp_path}/train-{shard:05}-of-{FILES:05}") as writer:
            for image in range(IMAGES_PER_FILE):
                write_record(writer, ("image", "label"), int64_feature(shard), 10 * (IMAGES_PER_FILE * shard + image))
    return Data(dataset=f"tfrecord:{tmp_path}")


def pixels_of(data, num_batches, seed=1, start_step=0):
    batches = training_pixels(data, open_dataset(data), seed, start_step)
    return [images[:, 0, 0, 0] for images, _ in batches.take(num_batches).as_numpy_iterator()]


def test_files_come_in_another_order_each_epoch(records):
    """A buffer of one image does not shuffle: what differs is the order of the files."""
    images = FILES * IMAGES_PER_FILE
    data = replace(records, image_size=8, crop="none", flip=False, batch_size=images, shuffle_images=1)
    epochs = pixels_of(data, 3)
    assert len({tuple(np.round(epoch)) for epoch in epochs}) == 3
    for epoch in epochs:  # each image once
        np.testing.assert_allclose(np.sort(epoch), np.sort(epochs[0]), atol=0.1)
    for epoch, again in zip(epochs, pixels_of(data, 3)):
        np.testing.assert_array_equal(epoch, again)
    assert not np.array_equal(epochs[0], pixels_of(data, 1, seed=2)[0])


def test_a_resumed_run_continues_the_order_of_its_epoch(records):
    """Batches of 9 images: the third contains the end of an epoch."""
    data = replace(records, image_size=8, batch_size=9, shuffle_images=5)
    whole = pixels_of(data, 7)
    for start in (2, 5):
        np.testing.assert_array_equal(pixels_of(data, 1, start_step=start)[0], whole[start])


def test_cache_and_labels_per_class_keep_the_order_of_files(records):
    images = FILES * IMAGES_PER_FILE
    data = replace(records, image_size=8, crop="none", flip=False, batch_size=images, shuffle_images=1)
    first, second = pixels_of(replace(data, cache=True), 2)
    np.testing.assert_array_equal(first, second)
    chosen = pixels_of(replace(data, labels_per_class=2, batch_size=2 * FILES), 2)
    np.testing.assert_array_equal(chosen[0], chosen[1])


def test_corrupt_images_are_named_by_their_file(tmp_path, capfd):
    (tmp_path / "labels.txt").write_text("a\n")
    for shard in range(2):
        with tf.io.TFRecordWriter(f"{tmp_path}/train-{shard:05}-of-00002") as writer:
            contents = [jpeg(10), b"\xff\xd8\xff damaged" if shard else jpeg(20)]
            for content in contents:
                image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
                features = tf.train.Features(feature={"image": image, "label": int64_feature(0)})
                writer.write(tf.train.Example(features=features).SerializeToString())
    data = Data(dataset=f"tfrecord:{tmp_path}", image_size=8, batch_size=4, max_corrupt=0.5)
    pixels_of(data, 1)
    assert "train-00001-of-00002 image 1" in capfd.readouterr().err
