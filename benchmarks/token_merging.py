"""Token merging (ToMe, arXiv 2210.09461) in exported files, against smaller images: accuracy drop and latency.

Requires keras_vit[tensorflow,recipes,export].
Command: python benchmarks/token_merging.py deit_tiny_patch16_224.safetensors --images samples.zip --labels labels.txt
         python benchmarks/token_merging.py S/16      # random weights: latency alone
After the attention of a block, r tokens are merged with the most similar ones, by the mean of the keys over the heads;
a mean counts as many patches as it has, also in attention. Images and labels are those of photographs.py. All files of
a format are timed in turns of ten calls, one thread: compare the ratios. --files FOLDER keeps them for an audit.
"""

import argparse
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf
from photographs import read_images

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.benchmark import compare
from keras_vit.export.tflite import graph_rewrite
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.layer_norm import layer_norm

FORMATS = ("float32", "dynamic-int8")
BLOCKS = 12
# Tokens that each block merges; the last reads the class token alone.
MERGES = {f"merging, r = {r}": dict.fromkeys(range(BLOCKS - 1), r) for r in (8, 12, 16)}
MERGES["three merges: 50, 36, 27"] = {2: 50, 5: 36, 8: 27}
MERGES["one merge: 60"] = {3: 60}
SIZES = (208, 192, 176)


def match(keys, r):
    """Which tokens to merge: keys (K, N, d) -> indices of a (even tokens) to keep and to merge, and their partners."""
    metric = tf.math.l2_normalize(tf.reduce_mean(keys, axis=0), axis=-1)  # (N, d)
    scores = tf.matmul(metric[::2], metric[1::2], transpose_b=True)  # (a, b)
    best = tf.reduce_max(scores, axis=-1) - 4.0 * tf.one_hot(0, scores.shape[0])  # never the class token
    _, order = tf.math.top_k(-best, scores.shape[0])  # least similar first, so the class token remains the first
    kept, merged = order[: scores.shape[0] - r], order[scores.shape[0] - r :]
    return kept, merged, tf.gather(tf.argmax(scores, axis=-1, output_type=tf.int32), merged)


def merge(values, kept, merged, partners):
    """Sums of the values of merged tokens: (N, D) -> (N - r, D)."""
    even, odd = values[::2], values[1::2]
    added = tf.matmul(tf.one_hot(partners, odd.shape[0]), tf.gather(even, merged), transpose_a=True)  # (b, D)
    return tf.concat([tf.gather(even, kept), odd + added], axis=0)


def check_model(model):
    """Only plain blocks are written here, and only the class token is protected."""
    config = model.config
    if (
        config.depth != BLOCKS
        or model.prefix_tokens != 1
        or config.layer_scale
        or config.qk_norm
        or config.position_embedding == "relative"
    ):
        raise SystemExit(f"Expected a ViT of {BLOCKS} plain blocks with a class token. Received: {config}")


def merging_block(merges):
    """A replacement of `graph_rewrite._block` that merges tokens."""
    state = {}

    def apply(block, tokens, weights, norm_outputs, count=None):
        number = len(weights)  # of the block: each has appended its attention
        if number == 0:
            state["sizes"] = tf.ones((tokens.shape[1], 1))
        normed, layer = layer_norm(block.norm_attention, tokens), block.attention
        joined = tf.reshape(layer.qkv(normed), (tokens.shape[1], 3 * layer.num_heads, -1))
        query, key, value = tf.split(tf.transpose(joined, (1, 0, 2)), 3)  # (K, N, d)
        query = query if count is None else query[:, :count]
        logits = tf.matmul(query, key, transpose_b=True) + tf.math.log(state["sizes"])[:, 0]  # (K, N, N)
        mixed = graph_rewrite._project_mixed(layer, logits[None], value[None], weights)  # (1, N, D)
        tokens = (tokens if count is None else tokens[:, :count]) + mixed
        if number in merges:
            found, sizes = match(key, merges[number]), state["sizes"]
            state["sizes"] = merge(sizes, *found)
            tokens = (merge(tokens[0] * sizes, *found) / state["sizes"])[None]  # (1, N - r, D)
        return tokens + block.mlp(layer_norm(block.norm_mlp, tokens))

    return apply


def write_files(model, folder):
    """The files of all rows: label -> format -> path."""
    files = {"unchanged": write_tflite(model, folder / "unchanged", FORMATS)}
    for label, merges in MERGES.items():
        with mock.patch.object(graph_rewrite, "_block", merging_block(merges)):
            files[label] = write_tflite(model, folder / label, FORMATS)
    for size in SIZES:
        label = f"image of {size} pixels"
        files[label] = write_tflite(model.resized(size, "bicubic"), folder / label, FORMATS)
    return files


def accuracies(model, files, arguments):
    """Top-1 accuracy of the float32 file of each row, in percent."""
    found = {}
    for label, paths in files.items():
        size = (int(label.split()[2]),) * 2 if "pixels" in label else model.image_size
        preprocessing = model.resized(size, "bicubic").preprocessing
        images, labels = read_images(arguments.images, arguments.labels, preprocessing, arguments.judge)
        probabilities, _ = run_tflite(paths["float32"], images)
        found[label] = 100 * float(np.mean(probabilities.argmax(axis=-1) == labels))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="file for keras_vit.load, or a variant such as S/16")
    parser.add_argument("--images", nargs="+", help="folders or zip files of photographs")
    parser.add_argument("--labels", help='text file, "<file name> <class index>" per line')
    parser.add_argument("--judge", type=int, default=300)
    parser.add_argument("--num-runs", type=int, default=60)
    parser.add_argument("--files", type=Path)
    arguments = parser.parse_args()
    random = not Path(arguments.model).exists()
    if not random and not (arguments.images and arguments.labels):
        parser.error("the accuracy of trained weights requires --images and --labels")
    model = (
        keras_vit.ViT(arguments.model, image_size=224, num_classes=1000) if random else keras_vit.load(arguments.model)
    )
    check_model(model)
    if not random:  # before the files are written, which takes minutes
        read_images(arguments.images, arguments.labels, model.preprocessing, arguments.judge)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(model, arguments.files or Path(folder))
        found = {} if random else accuracies(model, files, arguments)
        times = {name: compare([one[name] for one in files.values()], 1, arguments.num_runs) for name in FORMATS}
    print("| | accuracy drop, percentage points | time in float32 | in dynamic-int8 | operations, float32 |")
    print("|---|---|---|---|---|")
    for row, label in enumerate(files):
        drop = f"{found['unchanged'] - found[label]:.1f}" if found else ""
        ratios = " | ".join(f"{one[row].median_ms / one[0].median_ms:.2f}" for one in times.values())
        print(f"| {label} | {drop} | {ratios} | {times['float32'][row].num_operations} |")


if __name__ == "__main__":
    main()
