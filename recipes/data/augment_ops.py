"""The image operations of big_vision's RandAugment and of AutoAugment, on (H, W, 3) uint8 of static shape. H W pixels.

Each computes what tf-models-official does (official/vision/ops/augment.py), whose functions are called where they are
fast. The others are written for speed, with the same result, except that geometric ones fill with gray (128), as in the
code that trained the published AugReg models, and not by reflection. Nothing here is random, so that images depend on
(seed, index) only; tf-models-official draws from TensorFlow's global generator.

`level` is a Python number, 10 the strongest of AutoAugment; `sign` a scalar tensor, 1.0 or -1.0; `point` two scalar
tensors (y, x) in [0, 1).
"""

import math

import tensorflow as tf

GRAY = 128
# Side of the images for which tf-models-official specifies lengths in pixels; here lengths scale with the image.
REFERENCE_SIZE = 224


def operations() -> dict:
    """Functions (image, level, sign, point) -> image by name, in the order of tf-models-official's RandAugment.

    Raises:
        ImportError: tf-models-official is not installed.
    """
    official = import_official()
    return {
        "AutoContrast": lambda image, level, sign, point: autocontrast(image),
        "Equalize": lambda image, level, sign, point: equalize(image),
        "Invert": lambda image, level, sign, point: official.invert(image),
        "Rotate": lambda image, level, sign, point: rotate(image, 3.0 * level * sign),
        "Posterize": lambda image, level, sign, point: official.posterize(image, posterize_bits(level)),
        "Solarize": lambda image, level, sign, point: solarize(image, int(level / 10 * 256) % 256),
        "Color": lambda image, level, sign, point: official.color(image, blend_factor(level)),
        "Contrast": lambda image, level, sign, point: official.contrast(image, blend_factor(level)),
        "Brightness": lambda image, level, sign, point: official.brightness(image, blend_factor(level)),
        "Sharpness": lambda image, level, sign, point: sharpness(image, blend_factor(level)),
        "ShearX": lambda image, level, sign, point: affine(image, (1.0, 0.03 * level * sign, 0.0), (0.0, 1.0, 0.0)),
        "ShearY": lambda image, level, sign, point: affine(image, (1.0, 0.0, 0.0), (0.03 * level * sign, 1.0, 0.0)),
        "TranslateX": lambda image, level, sign, point: translate(
            image, scaled_pixels(image, 10 * level), sign, axis=1
        ),
        "TranslateY": lambda image, level, sign, point: translate(
            image, scaled_pixels(image, 10 * level), sign, axis=0
        ),
        "Cutout": lambda image, level, sign, point: cutout(image, scaled_pixels(image, int(4 * level)), point),
        "SolarizeAdd": lambda image, level, sign, point: solarize_add(image, int(11 * level)),
    }


def big_vision_operations() -> dict:
    """The operations of big_vision's RandAugment (pp/archive/autoaugment.py), in its order: only Contrast differs."""
    contrast = {"Contrast": lambda image, level, sign, point: contrast_to_size(image, blend_factor(level))}
    return operations() | contrast


def contrast_to_size(image, factor: float):
    """Blends with one gray, H W / 256 up to 255, where Pillow has the mean brightness: 196 at 224 x 224 pixels.

    The code that trained the published AugReg models has this error: it sums the histogram without its values.
    """
    gray = float(min(image.shape[0] * image.shape[1] // 256, 255))
    blended = gray + factor * (tf.cast(image, tf.float32) - gray)
    return tf.cast(tf.clip_by_value(blended, 0.0, 255.0), tf.uint8)


def solarize(image, threshold: int):
    """Inverts the values at or above the threshold.

    RandAugment's threshold at level 10, 256, wraps to 0 in uint8, which inverts all values, and 384 (level 15) to 128,
    as in tf-models-official and in the code of AugReg.
    """
    bright = tf.cast(image >= threshold, tf.uint8) * tf.constant(255, tf.uint8)
    return tf.bitwise.bitwise_xor(image, bright)


def solarize_add(image, addition: int):
    """Adds to the values below 128, and clips at 255."""
    dark = tf.cast(image < 128, tf.uint8) * tf.constant(255, tf.uint8)
    return image + tf.minimum(tf.bitwise.bitwise_and(dark, min(addition, 255)), tf.bitwise.invert(image))


def posterize_bits(level) -> int:
    """Bits that RandAugment keeps: 4 at level 10. Above 8 it is 1: tf-models-official's 8 - bits wraps in uint8."""
    bits = int(level / 10 * 4)
    return bits if bits <= 8 else 1


def autocontrast(image):
    """Stretches each channel to [0, 255]."""
    rows = _rows(image)
    low, high = (
        tf.cast(reduce(tf.reshape(reduce(rows, axis=0), (-1, 3)), axis=0), tf.float32)  # (3,)
        for reduce in (tf.reduce_min, tf.reduce_max)
    )
    scale = tf.where(high > low, 255.0 / (high - low), 1.0)
    offset = tf.where(high > low, -low * scale, 0.0)
    width = image.shape[1]
    stretched = tf.cast(rows, tf.float32) * tf.tile(scale, [width]) + tf.tile(offset, [width])  # (H, W * 3)
    return tf.reshape(tf.cast(tf.clip_by_value(stretched, 0.0, 255.0), tf.uint8), image.shape)


def equalize(image):
    """Equalizes the histogram of each channel, as Pillow does."""
    height, width, _ = image.shape
    values = tf.cast(_rows(image), tf.int32) + tf.tile([0, 256, 512], [width])  # (H, W * 3): one table for all channels
    histogram = tf.math.bincount(values, minlength=768, maxlength=768)
    histogram = tf.reshape(histogram, (3, 256))
    last = tf.reduce_max(tf.where(histogram > 0, tf.range(256), 0), axis=1, keepdims=True)  # (3, 1)
    step = (height * width - tf.gather(histogram, last, batch_dims=1)) // 255  # (3, 1)
    before = tf.cumsum(histogram, axis=1, exclusive=True)
    table = tf.where(step > 0, (before + step // 2) // tf.maximum(step, 1), tf.range(256))  # (3, 256)
    table = tf.cast(tf.minimum(table, 255), tf.uint8)
    return tf.reshape(tf.gather(tf.reshape(table, (-1,)), values), image.shape)


def sharpness(image, factor: float):
    """Sharpens (factor above 1) or smooths (below 1) with Pillow's 3 x 3 kernel; the border is unchanged."""
    pixels = tf.cast(image, tf.float32)
    center = pixels[1:-1, 1:-1]
    rows = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]  # (H, W - 2, 3)
    smooth = tf.floor((rows[:-2] + rows[1:-1] + rows[2:] + 4.0 * center) / 13.0)  # (H - 2, W - 2, 3)
    inner = tf.cast(tf.clip_by_value(smooth + factor * (center - smooth), 0.0, 255.0), tf.uint8)
    middle = tf.concat([image[1:-1, :1], inner, image[1:-1, -1:]], axis=1)  # (H - 2, W, 3)
    return tf.concat([image[:1], middle, image[-1:]], axis=0)


def rotate(image, degrees):
    """Rotates around the center."""
    height, width, _ = image.shape
    radians = degrees * (math.pi / 180)
    cosine, sine, x, y = tf.cos(radians), tf.sin(radians), (width - 1) / 2, (height - 1) / 2
    return affine(image, (cosine, -sine, x - cosine * x + sine * y), (sine, cosine, y - sine * x - cosine * y))


def affine(image, to_x, to_y):
    """Affine transform: pixel (x, y) is the nearest one to (a x + b y + c, d x + e y + f), or gray outside.

    A gather, in a fifth of the time of ImageProjectiveTransformV3 and with the same pixels.

    Args:
        image: (H, W, 3).
        to_x: (a, b, c).
        to_y: (d, e, f).
    """
    height, width, _ = image.shape
    x, y = tf.range(width, dtype=tf.float32)[None], tf.range(height, dtype=tf.float32)[:, None]
    # A border of one gray pixel stands for everything outside; 1.5 is for the border and for rounding.
    column, row = (
        tf.cast(tf.clip_by_value(a * x + (b * y + (c + 1.5)), 0.0, side + 1.0), tf.int32)  # (H, W)
        for (a, b, c), side in ((to_x, width), (to_y, height))
    )
    padded = tf.pad(_rows(image), [[1, 1], [3, 3]], constant_values=GRAY)
    pixels = tf.reshape(padded, ((height + 2) * (width + 2), 3))
    return tf.gather(pixels, row * (width + 2) + column)  # (H, W, 3)


def translate(image, pixels: int, sign, axis: int):
    """Shifts the image up or left (sign 1), or down or right (sign -1), and fills with gray."""
    side = image.shape[axis]
    pixels = min(pixels, side)
    remaining, gray = [side - pixels if i == axis else -1 for i in range(3)], list(image.shape)
    gray[axis] = pixels
    gray = tf.fill(gray, tf.constant(GRAY, tf.uint8))
    begin = [pixels if i == axis else 0 for i in range(3)]
    moved = tf.cond(
        sign > 0,
        lambda: tf.concat([tf.slice(image, begin, remaining), gray], axis),
        lambda: tf.concat([gray, tf.slice(image, [0, 0, 0], remaining)], axis),
    )
    return tf.ensure_shape(moved, image.shape)


def cutout(image, half: int, point):
    """Fills a square of side 2 * half around a point with gray, as far as it is inside the image."""
    height, width, _ = image.shape
    masks = []
    for axis, side in enumerate((height, width)):
        center = tf.cast(point[axis] * side, tf.int32)
        pixel = tf.range(side)
        masks.append(tf.cast((pixel >= center - half) & (pixel < center + half), tf.uint8) * tf.constant(255, tf.uint8))
    mask = tf.bitwise.bitwise_and(masks[0][:, None], tf.repeat(masks[1], 3)[None])  # (H, W * 3)
    outside = tf.bitwise.bitwise_and(_rows(image), tf.bitwise.invert(mask))
    return tf.reshape(tf.bitwise.bitwise_or(outside, tf.bitwise.bitwise_and(mask, GRAY)), image.shape)


def _rows(image):
    """(H, W * 3): operations along an axis of three channels are slow."""
    return tf.reshape(image, (image.shape[0], image.shape[1] * 3))


def blend_factor(level):
    return level / 10 * 1.8 + 0.1


def scaled_pixels(image, length):
    return round(length * image.shape[1] / REFERENCE_SIZE)


def import_official():
    """Imports tf-models-official's augmentations; raises ImportError with the fix if it is not installed."""
    try:
        from official.vision.ops import augment  # takes seconds, and only some recipes need it
    except ImportError as error:
        raise ImportError(
            "RandAugment and AutoAugment require tf-models-official: pip install 'keras_vit[augment]'. On a TPU VM, "
            "where tensorflow would be installed over tensorflow-tpu, see docs/tpu.md."
        ) from error
    return augment
