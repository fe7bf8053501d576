"""The operations of AutoAugment and RandAugment on an image, (H, W, 3) uint8 of static shape.

What each computes is tf-models-official's (official/vision/ops/augment.py), whose functions are called where they are
quick. The others are written for speed, with the same result; those of geometry differ in one point: what comes in from
outside is gray (128), as in the code that trained the published AugReg models, and not a mirror image. Nothing here is
random, so that images depend on (seed, number) only; tf-models-official draws from TensorFlow's global generator.

`level` is a Python number, 10 for the policies' strongest; `sign` a scalar tensor, 1.0 or -1.0; `place` a point (y, x)
in [0, 1). H W pixels.
"""

import math

import tensorflow as tf

GREY = 128
# Lengths of RandAugment in tf-models-official are for images of this side; here they grow with the image.
REFERENCE_SIZE = 224


def operations() -> dict:
    """Functions (image, level, sign, place) -> image by name, in the order of tf-models-official's RandAugment.

    Raises:
        ImportError: tf-models-official is not installed.
    """
    official = tf_models_augment()
    return {
        "AutoContrast": lambda image, level, sign, place: autocontrast(image),
        "Equalize": lambda image, level, sign, place: equalize(image),
        "Invert": lambda image, level, sign, place: official.invert(image),
        "Rotate": lambda image, level, sign, place: rotate(image, 3.0 * level * sign),
        "Posterize": lambda image, level, sign, place: official.posterize(image, posterize_bits(level)),
        "Solarize": lambda image, level, sign, place: solarize(image, int(level / 10 * 256) % 256),
        "Color": lambda image, level, sign, place: official.color(image, _factor(level)),
        "Contrast": lambda image, level, sign, place: official.contrast(image, _factor(level)),
        "Brightness": lambda image, level, sign, place: official.brightness(image, _factor(level)),
        "Sharpness": lambda image, level, sign, place: sharpness(image, _factor(level)),
        "ShearX": lambda image, level, sign, place: affine(image, (1.0, 0.03 * level * sign, 0.0), (0.0, 1.0, 0.0)),
        "ShearY": lambda image, level, sign, place: affine(image, (1.0, 0.0, 0.0), (0.03 * level * sign, 1.0, 0.0)),
        "TranslateX": lambda image, level, sign, place: translate(image, _pixels(image, 10 * level), sign, axis=1),
        "TranslateY": lambda image, level, sign, place: translate(image, _pixels(image, 10 * level), sign, axis=0),
        "Cutout": lambda image, level, sign, place: cutout(image, _pixels(image, int(4 * level)), place),
        "SolarizeAdd": lambda image, level, sign, place: solarize_add(image, int(11 * level)),
    }


def solarize(image, threshold: int):
    """Inverts the values that are not below the threshold.

    RandAugment's threshold at level 10, 256, is 0 in uint8, which inverts all: tf-models-official and the code of
    AugReg both have it so, and 384 (level 15) is 128.
    """
    bright = tf.cast(image >= threshold, tf.uint8) * tf.constant(255, tf.uint8)
    return tf.bitwise.bitwise_xor(image, bright)


def solarize_add(image, addition: int):
    """Adds to the values below 128, up to 255."""
    dark = tf.cast(image < 128, tf.uint8) * tf.constant(255, tf.uint8)
    return image + tf.minimum(tf.bitwise.bitwise_and(dark, min(addition, 255)), tf.bitwise.invert(image))


def posterize_bits(level) -> int:
    """Of RandAugment: 4 at level 10. tf-models-official computes 8 - bits in uint8, so that above 8 one bit stays."""
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
    """Makes the values of each channel about equally frequent, as Pillow does."""
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
    """Away from (factor above 1) or towards the image smoothed by Pillow's 3 x 3 kernel; the border stays."""
    pixels = tf.cast(image, tf.float32)
    center = pixels[1:-1, 1:-1]
    rows = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]  # (H, W - 2, 3)
    smooth = tf.floor((rows[:-2] + rows[1:-1] + rows[2:] + 4.0 * center) / 13.0)  # (H - 2, W - 2, 3)
    inner = tf.cast(tf.clip_by_value(smooth + factor * (center - smooth), 0.0, 255.0), tf.uint8)
    middle = tf.concat([image[1:-1, :1], inner, image[1:-1, -1:]], axis=1)  # (H - 2, W, 3)
    return tf.concat([image[:1], middle, image[-1:]], axis=0)


def rotate(image, degrees):
    """Turns around the center."""
    height, width, _ = image.shape
    radians = degrees * (math.pi / 180)
    cosine, sine, x, y = tf.cos(radians), tf.sin(radians), (width - 1) / 2, (height - 1) / 2
    return affine(image, (cosine, -sine, x - cosine * x + sine * y), (sine, cosine, y - sine * x - cosine * y))


def affine(image, to_x, to_y):
    """The pixel at (x, y) becomes the nearest one to (a x + b y + c, d x + e y + f), or gray outside.

    An indexed copy: a fifth of the time of ImageProjectiveTransformV3, the same pixels.

    Args:
        image: (H, W, 3).
        to_x: (a, b, c).
        to_y: (d, e, f).
    """
    height, width, _ = image.shape
    x, y = tf.range(width, dtype=tf.float32)[None], tf.range(height, dtype=tf.float32)[:, None]
    # A frame of one gray pixel stands for all that is outside; 1.5 for the frame and for rounding.
    column, row = (
        tf.cast(tf.clip_by_value(a * x + (b * y + (c + 1.5)), 0.0, side + 1.0), tf.int32)  # (H, W)
        for (a, b, c), side in ((to_x, width), (to_y, height))
    )
    framed = tf.pad(_rows(image), [[1, 1], [3, 3]], constant_values=GREY)
    pixels = tf.reshape(framed, ((height + 2) * (width + 2), 3))
    return tf.gather(pixels, row * (width + 2) + column)  # (H, W, 3)


def translate(image, pixels: int, sign, axis: int):
    """Moves the image towards its top or left (sign 1) or its bottom or right."""
    side = image.shape[axis]
    pixels = min(pixels, side)
    kept, gray = [side - pixels if i == axis else -1 for i in range(3)], list(image.shape)
    gray[axis] = pixels
    gray = tf.fill(gray, tf.constant(GREY, tf.uint8))
    begin = [pixels if i == axis else 0 for i in range(3)]
    moved = tf.cond(
        sign > 0,
        lambda: tf.concat([tf.slice(image, begin, kept), gray], axis),
        lambda: tf.concat([gray, tf.slice(image, [0, 0, 0], kept)], axis),
    )
    return tf.ensure_shape(moved, image.shape)


def cutout(image, half: int, place):
    """Grays a square of the side 2 * half around a point, the part inside the image."""
    height, width, _ = image.shape
    masks = []
    for axis, side in enumerate((height, width)):
        center = tf.cast(place[axis] * side, tf.int32)
        pixel = tf.range(side)
        masks.append(tf.cast((pixel >= center - half) & (pixel < center + half), tf.uint8) * tf.constant(255, tf.uint8))
    mask = tf.bitwise.bitwise_and(masks[0][:, None], tf.repeat(masks[1], 3)[None])  # (H, W * 3)
    outside = tf.bitwise.bitwise_and(_rows(image), tf.bitwise.invert(mask))
    return tf.reshape(tf.bitwise.bitwise_or(outside, tf.bitwise.bitwise_and(mask, GREY)), image.shape)


def _rows(image):
    """(H, W * 3): operations along three channels only are slow."""
    return tf.reshape(image, (image.shape[0], image.shape[1] * 3))


def _factor(level):
    return level / 10 * 1.8 + 0.1


def _pixels(image, length):
    return round(length * image.shape[1] / REFERENCE_SIZE)


def tf_models_augment():
    """tf-models-official's module of augmentations; raises ImportError, with the remedy, without it."""
    try:
        from official.vision.ops import augment  # it takes seconds, and only some recipes need it
    except ImportError as error:
        raise ImportError(
            "RandAugment and AutoAugment need tf-models-official: pip install 'keras_vit[augment]'. On a TPU VM, where "
            "tensorflow would be installed over tensorflow-tpu, see docs/tpu.md."
        ) from error
    return augment
