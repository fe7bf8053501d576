"""JPEG files and TFRecords of small images, and what a dataset reads from them."""

import numpy as np
import tensorflow as tf
from PIL import Image
from scenes import encoded


def jpeg(value):
    return encoded(Image.fromarray(np.full((9, 11, 3), value, "uint8")), "JPEG")


def labels_of(dataset, split):
    return [label.tolist() for _, _, label in dataset.read(split).as_numpy_iterator()]


def image_names(dataset, split):
    return [name.decode() for name, _, _ in dataset.read(split).as_numpy_iterator()]


def int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def write_record(writer, keys, label_feature, value=0):
    """Writes an image of one value, with a feature as its label."""
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg(value)]))
    features = tf.train.Features(feature=dict(zip(keys, (image, label_feature))))
    writer.write(tf.train.Example(features=features).SerializeToString())


def write_records(folder, keys, first_label=0, names="a\nb\nc\n"):
    """Writes 5 and 2 training images in two files, and 1 validation image."""
    files = {"train-00000-of-00002": [0, 1, 2, 0, 1], "train-00001-of-00002": [2, 2], "validation-00000-of-00001": [1]}
    for name, labels in files.items():
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for label in labels:
                write_record(writer, keys, int64_feature(label + first_label), 40 * label)
    if names:
        (folder / "labels.txt").write_text(names)
