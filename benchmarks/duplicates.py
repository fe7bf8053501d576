"""Recall and false positives of `keras-vit prepare --against`, and its cost.

Command: python benchmarks/duplicates.py imagenet_samples.zip --train cifar10_train.zip --test cifar10_test.zip
Recall: each JPEG image of the first archive and a modified version of it. False positives: pairs of different images of
the first archive, and pairs of a training and a test image, mirrored or not. CIFAR-10 has real copies, so its number is
an upper bound; mirrored copies are rare there, so mirrored pairs are a better estimate.
Cost: images per second on one core, and microseconds for one image against 100,000.
"""

import argparse
import io
import time
import zipfile

import numpy as np
from PIL import Image, ImageOps

from keras_vit.recipes.prepare.duplicates import HashIndex, fingerprint

THRESHOLDS = (10, 40, 50, 60, 64, 70)


def files(archive):
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(opened.namelist()):
            if name.lower().endswith((".jpg", ".jpeg")):
                yield opened.read(name)


def opened(encoded):
    return Image.open(io.BytesIO(encoded))


def encoded(image, quality):
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality)
    return opened(buffer.getvalue())


def crop_border(image, fraction):
    width, height = image.size
    x, y = max(1, round(width * fraction / 2)), max(1, round(height * fraction / 2))
    return image.crop((x, y, width - x, height - y))


CHANGES = {
    "JPEG, quality 75": lambda image: encoded(image, 75),
    "JPEG, quality 30": lambda image: encoded(image, 30),
    "half the size, JPEG 75": lambda image: encoded(image.resize([max(1, s // 2) for s in image.size]), 75),
    "mirrored, JPEG 75": lambda image: encoded(ImageOps.mirror(image), 75),
    "30 % brighter": lambda image: image.convert("RGB").point(lambda value: min(255, int(value * 1.3))),
    "gray": lambda image: image.convert("L"),
    "sides cropped by 5 %": lambda image: crop_border(image, 0.05),
    "sides cropped by 10 %": lambda image: crop_border(image, 0.10),
}


def distances(hashes, others):
    """(P, Q) numbers of different bits: for +-1 vectors (256 - dot product) / 2, which is faster for many pairs."""
    signs = [np.unpackbits(h.view("uint8"), axis=-1).astype("float32") * 2 - 1 for h in (hashes, others)]
    return ((256 - signs[0] @ signs[1].T) / 2).astype("int16")


def row(name, values, form):
    print(f"| {name} | " + " | ".join(form.format(value) for value in values) + " |", flush=True)


def recall(archive):
    originals = list(files(archive))
    start = time.perf_counter()
    hashes = np.stack([fingerprint(opened(file)) for file in originals])  # (P, 2, W)
    seconds = time.perf_counter() - start
    print(f"{len(originals) / seconds:,.0f} images/s decoded and hashed, one core\n")
    row(f"recall, of {len(originals)} images, by threshold in bits", THRESHOLDS, "{}")
    print("|---" * (len(THRESHOLDS) + 1) + "|")
    for name, change in CHANGES.items():
        changed = np.stack([fingerprint(change(opened(file))) for file in originals])
        differ = np.bitwise_count(changed ^ hashes[:, :1]).sum(-1).min(1)  # the smaller of plain and mirrored
        row(name, [(differ <= threshold).mean() for threshold in THRESHOLDS], "{:.1%}")
    different = ~np.eye(len(originals), dtype=bool)
    pairs = np.concatenate([distances(hashes[:, i], hashes[:, 0])[different] for i in (0, 1)])
    print(f"\n{len(pairs):,} pairs of different images: the most similar differ in {pairs.min()} bits\n")


def false_positives(train, test):
    test_hashes = np.stack([fingerprint(opened(file))[0] for file in files(test)])
    num_copies, num_train = np.zeros((2, len(THRESHOLDS)), int), 0
    copied = set()
    for block in blocks(files(train), 1000):
        hashes = np.stack([fingerprint(opened(file)) for file in block])
        num_train += len(block)
        for i in (0, 1):
            differ = distances(hashes[:, i], test_hashes)
            num_copies[i] += [np.count_nonzero(differ <= threshold) for threshold in THRESHOLDS]
            copied |= set(np.nonzero(differ <= 60)[1])
    num_pairs = num_train * len(test_hashes)
    row(f"pairs called copies, of {num_pairs:.0e}, by threshold in bits", THRESHOLDS, "{}")
    print("|---" * (len(THRESHOLDS) + 1) + "|")
    row("not mirrored", num_copies[0], "{:,}")
    row("mirrored", num_copies[1], "{:,}")
    print(f"\n{len(copied):,} of {len(test_hashes):,} test images have a copy in the training set, at 60 bits\n")


def blocks(items, size):
    block = []
    for item in items:
        block.append(item)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def cost():
    random = np.random.default_rng(0)
    index = HashIndex(map(str, range(100_000)), random.integers(0, 2**63, (100_000, 4), "uint64"))
    query = random.integers(0, 2**63, (2, 4), "uint64")
    start = time.perf_counter()
    for _ in range(100):
        index.nearest(query)
    print(f"{(time.perf_counter() - start) * 1e4:,.0f} microseconds for one image against 100,000, one core")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images")
    parser.add_argument("--train")
    parser.add_argument("--test")
    arguments = parser.parse_args()
    recall(arguments.images)
    if arguments.train and arguments.test:
        false_positives(arguments.train, arguments.test)
    cost()


if __name__ == "__main__":
    main()
