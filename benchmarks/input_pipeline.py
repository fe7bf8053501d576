"""Images per second from JPEG files in memory to training batches, compared with tf-models-official and bare decoding.

Requires vit-for-keras[tensorflow,recipes,dev]
Command: python benchmarks/input_pipeline.py --images imagenet_samples.zip
Each measurement takes 1,000 images; rounds are interleaved and ratios are medians over rounds, since other programs may
run. Images per second and core are computed from the CPU time of all threads, which other programs affect least. With
--enlarge 6 the images of ImageNet become photographs of 7 megapixels.
"""

import argparse
import importlib.util
import io
import os
import statistics
import time
import zipfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from PIL import Image

from keras_vit.recipes.data import ImageDataset, training_batches
from keras_vit.recipes.data.windows import inception_window
from keras_vit.recipes.recipe import Augment, Data

IMAGES, SIZE, BATCH = 1_000, 224, 100
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as the parser of tf-models-official
JPEG = (".jpg", ".jpeg")


def read_files(source):
    """Contents of the JPEG files in a folder or a zip file."""
    if Path(source).is_dir():
        return [file.read_bytes() for file in sorted(Path(source).rglob("*")) if file.suffix.lower() in JPEG]
    with zipfile.ZipFile(source) as archive:
        return [archive.read(name) for name in sorted(archive.namelist()) if name.lower().endswith(JPEG)]


def enlarged(file, factor):
    """A JPEG file with sides `factor` times as long."""
    image, larger = Image.open(io.BytesIO(file)).convert("RGB"), io.BytesIO()
    image.resize([factor * side for side in image.size], Image.Resampling.BICUBIC).save(larger, "JPEG", quality=90)
    return larger.getvalue()


def decode_only(images):
    """Draws an Inception crop and decodes it, nothing else."""

    def decode(index, image):
        window = inception_window(tf.stack([tf.zeros((), tf.int64), index]), Data.min_crop_area)
        image = tf.io.decode_and_crop_jpeg(image, window(tf.io.extract_jpeg_shape(image)), channels=3)
        return tf.size(image)  # crops of any size cannot be batched, and one by one Python would slow them down

    batches = images.repeat().enumerate().map(decode, tf.data.AUTOTUNE).batch(BATCH)
    return batches.prefetch(tf.data.AUTOTUNE)


def official(images, augmentation=None):
    """The training pipeline of tf-models-official: crop, flip, resize, augmentation, normalization."""
    from official.vision.dataloaders.classification_input import Parser

    parser = Parser([SIZE, SIZE], num_classes=10, aug_type=augmentation, crop_area_range=(Data.min_crop_area, 1.0))

    def parse(image):
        return parser.parse_train_image({"image/encoded": image})

    batches = images.repeat().map(parse, tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True)
    return batches.prefetch(tf.data.AUTOTUNE)


def ours(images, augment, **more):
    def read(split):
        return images.map(lambda image: ("", image, tf.zeros((), tf.int64)))

    dataset = ImageDataset("memory", ("any",), {"train": int(images.cardinality())}, read)
    data = Data(image_size=SIZE, batch_size=BATCH, shuffle_images=1, augment=augment, **more)
    return training_batches(data, dataset, seed=0)


def measure(iterator):
    """(seconds, seconds of CPU time) for IMAGES images."""
    start, before = time.perf_counter(), sum(os.times()[:2])
    for _ in range(IMAGES // BATCH):
        next(iterator)
    return time.perf_counter() - start, sum(os.times()[:2]) - before


def main(source, rounds, enlarge):
    from official.vision.configs import common

    files = read_files(source)
    if enlarge > 1:
        files = [enlarged(file, enlarge) for file in files]
    images = tf.data.Dataset.from_tensor_slices(files).cache()
    policy = common.Augmentation(type="randaug", randaug=common.RandAugment(num_layers=2, magnitude=10))
    pipelines = {
        "bare tf.io.decode_and_crop_jpeg": lambda: decode_only(images),
        "tf-models-official": lambda: official(images),
        "keras_vit": lambda: ours(images, Augment(), mean=IMAGENET[0], std=IMAGENET[1]),
        "keras_vit, mean and std 0.5": lambda: ours(images, Augment()),
        "keras_vit, scaled_decoding": lambda: ours(images, Augment(), scaled_decoding=True),
        "tf-models-official, RandAugment(2, 10)": lambda: official(images, policy),
        "keras_vit, RandAugment(2, 10)": lambda: ours(images, Augment(randaugment_layers=2)),
    }
    times = {name: [] for name in pipelines}
    for round_ in range(rounds + 1):
        for name, build in pipelines.items():
            iterator = iter(build())
            next(iterator)  # the start does not count
            seconds = measure(iterator)
            del iterator
            if round_:  # the first is a warm-up
                times[name].append(seconds)
    reference = next(iter(times.values()))
    print("| pipeline | images/s | images/s per core | speed / bare decoding | the same, CPU time |")
    print("|---|---|---|---|---|")
    for name, seconds in times.items():
        speeds = [IMAGES / statistics.median(values) for values in zip(*seconds)]
        pairs = zip(zip(*reference), zip(*seconds))
        ratios = [statistics.median(a / b for a, b in zip(*values)) for values in pairs]
        print(f"| {name} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="zip file or folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--enlarge", type=int, default=1, help="factor of the sides of all images")
    arguments = parser.parse_args()
    if not Path(arguments.images).exists():
        parser.error(f"there is no zip file or folder {arguments.images}")
    if importlib.util.find_spec("official") is None:
        parser.error("the comparison requires tf-models-official: pip install 'vit-for-keras[dev]'")
    main(arguments.images, arguments.rounds, arguments.enlarge)
