"""Where the time of a recipe's training step goes on this CPU, and its fraction of the speed of matrix products.

Requires keras_vit[tensorflow,recipes]
Command: python benchmarks/step_profile.py cifar10
         python benchmarks/step_profile.py cifar10-scratch --precision float32
The step is that of the recipe with random images: forward pass, backward pass, optimizer. It is timed without the
profiler; the fractions are of the time of all operations under TensorFlow's profiler, those that run at the same time
counted separately. The upper bound is the speed of one large matrix product in the same precision. Operations are three
times those of the forward pass, a multiplication and an addition counted as two, without those of the optimizer.
"""

import argparse
import collections
import glob
import re
import tempfile
import time
from dataclasses import replace

import numpy as np
import tensorflow as tf

from keras_vit.recipes import RECIPES
from keras_vit.recipes.training.compile import compile_classifier

STEPS = 20
# The first pattern that matches an operation's path decides.
PARTS = {
    "optimizer": r"/(muon|adamw?|sgd|lion|lamb)/",
    "convolutions, gradients of kernels": r"Conv2DBackpropFilter",
    "convolutions, gradients of inputs": r"Conv2DBackpropInput",
    "convolutions, forward": r"Conv2D$",
    "matrix products, backward": r"gradient_tape.*MatMul(V2)?$",
    "matrix products, forward": r"MatMul(V2)?$",
    "group normalization": r"/backbone_?\d*/(.*/gn\d|norm)_?\d*/",
    "standardization of kernels": r"/conv\w+/",
    "layer normalization": r"/norm_(attention|mlp)_?\d*/|/norm_?\d*/",
    "gradients of biases": r"BiasAddGrad$",
    "attention's softmax, heads and QK normalization": r"/attention_?\d*/",
}


def seconds(function):
    for _ in range(3):
        function()
    start = time.perf_counter()
    for _ in range(STEPS):
        result = function()
    np.asarray(result)
    return (time.perf_counter() - start) / STEPS


def matrix_speed(dtype, size=2048):
    """Operations a second of a square matrix product."""
    matrix = tf.cast(tf.random.normal((size, size)), dtype)
    product = tf.function(lambda: tf.matmul(matrix, matrix)[0, 0])
    return 2 * size**3 / seconds(lambda: tf.cast(product(), tf.float32))


def forward_operations(model, size):
    """Multiplications and additions of the forward pass of one image, as TensorFlow counts them."""
    graph = tf.function(lambda images: model(images, training=False)).get_concrete_function(
        tf.TensorSpec((1, size, size, 3))
    )
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    return tf.compat.v1.profiler.profile(graph.graph, options=options).total_float_ops


def operation_seconds(step):
    """Seconds of each operation of one step, by path, as the profiler reports them."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    totals = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(STEPS):
            step()
        tf.profiler.experimental.stop()
        (file,) = glob.glob(f"{folder}/plugins/profile/*/*.xplane.pb")
        with open(file, "rb") as handle:
            space = xplane_pb2.XSpace.FromString(handle.read())
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                path, _, operation = plane.event_metadata[event.metadata_id].name.split("#")[0].rpartition(":")
                if path.startswith("StatefulPartitionedCall/"):  # the step itself, not what calls it
                    totals[f"{path}/{operation}"] += event.duration_ps / 1e12 / STEPS
    return totals


def by_part(totals):
    parts = collections.Counter()
    for path, duration in totals.items():
        parts[next((name for name, pattern in PARTS.items() if re.search(pattern, path)), "other")] += duration
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=sorted(name for name in RECIPES if name.startswith("cifar10")))
    parser.add_argument("--precision", default="mixed_bfloat16", choices=("mixed_bfloat16", "float32"))
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.recipe]
    recipe = replace(recipe, run=replace(recipe.run, precision=arguments.precision, steps_per_execution=1))
    batch, size = recipe.data.batch_size, recipe.data.image_size
    model, _ = compile_classifier(recipe, 10, 1000)
    model.optimizer.build(model.trainable_variables)
    images, labels = tf.random.normal((batch, size, size, 3)), tf.one_hot(tf.range(batch) % 10, 10)
    batches = iter(tf.data.Dataset.from_tensors((images, labels)).repeat())
    model.make_train_function()

    def step():
        return model.train_function(batches)["loss"]

    duration = seconds(step)
    bound = matrix_speed(recipe.run.precision.replace("mixed_", ""))
    speed = 3 * batch * forward_operations(model, size) / duration
    print(
        f"{batch / duration:.0f} images/s, {speed / 1e9:.0f} GFLOP/s, {speed / bound:.2f} of {bound / 1e9:.0f} GFLOP/s"
    )
    parts = by_part(operation_seconds(step))
    print("\n| part | fraction of the time of all operations |\n|---|---|")
    for name, part in parts.most_common():
        print(f"| {name} | {part / sum(parts.values()):.2f} |")


if __name__ == "__main__":
    main()
