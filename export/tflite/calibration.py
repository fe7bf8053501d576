"""Calibration: ranges of channels and of activations, measured on images. n images, H W pixels, D width.

Integers cover a range from the smallest to the largest value, unless a narrower one has a smaller error: clipping a few
outliers leaves smaller steps for all other values. The range of each tensor minimizes the squared error of rounding
and clipping together (MSE calibration, as in TensorRT and TensorFlow).
"""

import numpy as np
import tensorflow as tf

from keras_vit.export.private_apis import inspectable_interpreter
from keras_vit.export.tflite.graph_rewrite import layer_norm_outputs

# Fewer images yield poor ranges; LiteRT's guide recommends 100 to 500.
MIN_IMAGES = 20
NUM_SAMPLES = 32_768  # values sampled per tensor, over all images
FRACTIONS = np.linspace(0.3, 1.0, 36)  # candidate ranges, relative to the widest


def channel_ranges(model, images):
    """Smallest and largest value of each channel after each layer normalization of the blocks.

    Args:
        model: An `export_copy`.
        images: (n, H, W, 3) float32 in [0, 255].

    Returns:
        Two lists of arrays (D,), in the order of `layer_norm_outputs`.
    """

    @tf.function
    def extremes(image):
        outputs = layer_norm_outputs(model, image)
        return [tf.reduce_min(x, axis=(0, 1)) for x in outputs], [tf.reduce_max(x, axis=(0, 1)) for x in outputs]

    found = [extremes(tf.constant(image[None])) for image in images]
    lows = [np.min([low.numpy() for low in of_norm], axis=0) for of_norm in zip(*(low for low, _ in found))]
    highs = [np.max([high.numpy() for high in of_norm], axis=0) for of_norm in zip(*(high for _, high in found))]
    return lows, highs


def activation_ranges(float32: bytes, images, seed: int = 0, clip: bool = True) -> dict[str, dict]:
    """Ranges of all tensors of a float32 model, {name: {"min", "max"}} as ai-edge-quantizer takes them.

    The range of the input is always [0, 255].

    Args:
        float32: The content of a .tflite file with one signature and one input.
        images: (n, H, W, 3) float32 in [0, 255].
        seed: Seed of the sample of values that the error is computed on.
        clip: Whether a range may exclude outliers.
    """
    interpreter = inspectable_interpreter(float32)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    tensors = [one for one in interpreter.get_tensor_details() if one["dtype"] == np.float32 and one["name"]]
    random, per_image = np.random.default_rng(seed), max(1, NUM_SAMPLES // len(images))
    samples: dict[int, list] = {one["index"]: [] for one in tensors}
    extremes = {one["index"]: (np.inf, -np.inf) for one in tensors}
    for image in images:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        for index in samples:
            try:
                values = interpreter.get_tensor(index).ravel()
            except ValueError:  # a temporary of one operation, without data
                continue
            low, high = extremes[index]
            extremes[index] = min(low, float(values.min())), max(high, float(values.max()))
            samples[index].append(values if len(values) <= per_image else random.choice(values, per_image))
    ranges = {}
    for one in tensors:
        if samples[one["index"]]:
            low, high = extremes[one["index"]]
            if clip:
                low, high = best_range(np.concatenate(samples[one["index"]]), low, high)
            ranges[one["name"]] = {
                name: np.full([1] * len(one["shape"]), x, "float32") for name, x in (("min", low), ("max", high))
            }
    for name, end in (("min", 0.0), ("max", 255.0)):  # phones feed uint8 pixels as they are
        ranges[entry["name"]][name] = np.full((1, 1, 1, 1), end, "float32")
    return ranges


def best_range(values, low: float, high: float, steps: int = 255) -> tuple[float, float]:
    """The part of [low, high] whose `steps` steps represent the values with the least squared error."""
    best, best_error = (low, high), np.inf
    for fraction in FRACTIONS:
        a, b = min(low, 0.0) * fraction, max(high, 0.0) * fraction
        step = (b - a) / steps
        if step <= 0:
            return low, high
        rounded = np.clip(np.round((values - a) / step), 0, steps) * step + a
        error = float(np.square(rounded - values, dtype="float64").mean())
        if error <= best_error:
            best, best_error = (a, b), error
    return best
