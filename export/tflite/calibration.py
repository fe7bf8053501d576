"""What the values of a float32 model lie between, from images. n images, H W pixels, D width.

Integers cover the range from the smallest to the largest value that was seen, unless a narrower range loses less: few
values are far out, and cutting them off leaves finer steps to all others. The range of each tensor is the one with the
least squared error of rounding and cutting together, as TensorRT and TensorFlow's own calibration (MSE) choose it.
"""

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from keras_vit.export.tflite.device_form import normalised_tokens

# Fewer images give poor ranges; LiteRT's guide asks for 100 to 500.
MIN_IMAGES = 20
KEPT = 32_768  # values of a tensor, from all images together
SHARES = np.linspace(0.3, 1.0, 36)  # of the widest range, that are tried


def channel_ranges(model, pixels):
    """Smallest and largest value of each channel behind each layer normalization of the blocks.

    Args:
        model: A `device_copy`.
        pixels: (n, H, W, 3) float32 in [0, 255].

    Returns:
        Two lists of arrays (D,), in the order of `normalised_tokens`.
    """

    @tf.function
    def ends(one):
        normed = normalised_tokens(model, one)
        return [tf.reduce_min(x, axis=(0, 1)) for x in normed], [tf.reduce_max(x, axis=(0, 1)) for x in normed]

    found = [ends(tf.constant(one[None])) for one in pixels]
    lows = [np.min([low.numpy() for low in of_norm], axis=0) for of_norm in zip(*(low for low, _ in found))]
    highs = [np.max([high.numpy() for high in of_norm], axis=0) for of_norm in zip(*(high for _, high in found))]
    return lows, highs


def activation_ranges(float32: bytes, pixels, seed: int = 0, clip: bool = True) -> dict[str, dict]:
    """{tensor: {"min", "max"}} of a float32 model, as ai-edge-quantizer takes it. That of the images is [0, 255].

    Args:
        float32: The content of a .tflite file with one signature and one input.
        pixels: (n, H, W, 3) float32 in [0, 255].
        seed: Of the choice of values that the error is computed of.
        clip: Whether a range may be narrower than all values.
    """
    interpreter = Interpreter(
        model_content=float32,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        num_threads=2,
    )
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    tensors = [one for one in interpreter.get_tensor_details() if one["dtype"] == np.float32 and one["name"]]
    random, each = np.random.default_rng(seed), max(1, KEPT // len(pixels))
    kept = {one["index"]: [] for one in tensors}
    ends = {one["index"]: (np.inf, -np.inf) for one in tensors}
    for image in pixels:
        interpreter.set_tensor(entry["index"], image[None])
        interpreter.invoke()
        for index in kept:
            try:
                values = interpreter.get_tensor(index).ravel()
            except ValueError:  # a temporary of one operation, without data
                continue
            low, high = ends[index]
            ends[index] = min(low, float(values.min())), max(high, float(values.max()))
            kept[index].append(values if len(values) <= each else random.choice(values, each))
    ranges = {}
    for one in tensors:
        if kept[one["index"]]:
            low, high = ends[one["index"]]
            if clip:
                low, high = best_range(np.concatenate(kept[one["index"]]), low, high)
            ranges[one["name"]] = {
                name: np.full([1] * len(one["shape"]), x, "float32") for name, x in (("min", low), ("max", high))
            }
    for name, end in (("min", 0.0), ("max", 255.0)):  # whatever was seen: phones give bytes, unscaled
        ranges[entry["name"]][name] = np.full((1, 1, 1, 1), end, "float32")
    return ranges


def best_range(values, low: float, high: float, steps: int = 255) -> tuple[float, float]:
    """The part of [low, high] whose `steps` steps represent the values with the least squared error."""
    best = None
    for share in SHARES:
        a, b = min(low, 0.0) * share, max(high, 0.0) * share
        step = (b - a) / steps
        if step <= 0:
            return low, high
        rounded = np.clip(np.round((values - a) / step), 0, steps) * step + a
        error = float(np.square(rounded - values, dtype="float64").mean())
        if best is None or error <= best[0]:
            best = error, a, b
    return best[1:]
