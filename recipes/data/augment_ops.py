"""The image operations of RandAugment and AutoAugment, on (H, W, 3) uint8 of static shape. H W pixels.

`OPERATIONS` equal those of tf-models-official (official/vision/ops/augment.py), except that geometric ones fill with
gray (128), as in the code that trained the published AugReg models, and not by reflection. Of a photograph's pixels,
Rotate and the shears take another neighbor in 0.02 to 0.2 %, where two are as near, and Sharpness, a mean of exact
thirteenths, rounds about 1 % otherwise. Nothing here is random, so that images depend on (seed, index) only;
tf-models-official draws from TensorFlow's global generator. augment_pillow.py has the operations that only timm's
RandAugment has.

`level` is a Python number, 10 the strongest of AutoAugment; `sign` a scalar tensor, 1.0 or -1.0; `point` two scalar
tensors (y, x) in [0, 1).
"""

import math

import tensorflow as tf

GRAY = 128
# Side of the images for which tf-models-official specifies lengths in pixels; here lengths scale with the image.
REFERENCE_SIZE = 224


def blend(degenerate, image, factor):
    """degenerate + factor * (image - degenerate), clipped to [0, 255] and truncated, as Pillow's ImageEnhance."""
    degenerate, image = tf.cast(degenerate, tf.float32), tf.cast(image, tf.float32)
    return tf.cast(tf.clip_by_value(degenerate + factor * (image - degenerate), 0.0, 255.0), tf.uint8)


def gray(image):
    """(H, W, 1) uint8 brightness, in Pillow's fixed-point arithmetic."""
    weighted = tf.cast(image, tf.int32) * (19595, 38470, 7471)
    return tf.cast((tf.reduce_sum(weighted, axis=-1, keepdims=True) + 0x8000) // 0x10000, tf.uint8)


def mean_gray(image):
    """The rounded mean brightness."""
    return tf.floor(tf.reduce_mean(tf.cast(gray(image), tf.float32)) + 0.5)


def tensorflow_gray(image):
    """(H, W, 3) uint8 brightness by `tf.image.rgb_to_grayscale`, which may differ from Pillow's by one."""
    return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))


def pixels_per_gray_level(image):
    """H W / 256, up to 255: the gray around which the code of AugReg changes the contrast, 196 at 224 x 224 pixels."""
    return min(image.shape[0] * image.shape[1] // 256, 255)


def solarize(image, threshold):
    """Inverts the values at or above the threshold, an integer."""
    bright = tf.cast(tf.cast(image, tf.int32) >= threshold, tf.uint8) * tf.constant(255, tf.uint8)
    return tf.bitwise.bitwise_xor(image, bright)


def solarize_add(image, addition):
    """Adds an integer in [0, 255] to the values below 128, and clips at 255."""
    dark = tf.cast(image < 128, tf.uint8) * tf.constant(255, tf.uint8)
    addition = tf.bitwise.bitwise_and(dark, tf.cast(addition, tf.uint8))
    return image + tf.minimum(addition, tf.bitwise.invert(image))


def posterize(image, bits: int):
    """Keeps the highest bits, 1 to 8."""
    return tf.bitwise.bitwise_and(image, 256 - 2 ** (8 - bits))


def posterize_bits(level) -> int:
    """Bits that RandAugment keeps: 4 at level 10.

    0 and numbers above 8 become 1: tf-models-official shifts by 8 - bits, at most 7, which wraps in uint8.
    """
    bits = int(level / 10 * 4)
    return bits if 1 <= bits <= 8 else 1


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


def smoothed(image, addend: float):
    """Pillow's filter SMOOTH, a 3 x 3 mean with the weight 5 of 13 for the center; the border is unchanged.

    `addend` is of the sum before it is divided by 13 and truncated: 0.5 truncates exactly, 6.5 rounds.
    """
    pixels = tf.cast(image, tf.float32)
    rows = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]  # (H, W - 2, 3)
    total = rows[:-2] + rows[1:-1] + rows[2:] + 4.0 * pixels[1:-1, 1:-1]
    inner = tf.cast((total + addend) / 13.0, tf.uint8)  # (H - 2, W - 2, 3)
    middle = tf.concat([image[1:-1, :1], inner, image[1:-1, -1:]], axis=1)  # (H - 2, W, 3)
    return tf.concat([image[:1], middle, image[-1:]], axis=0)


def rotate(image, degrees):
    """Rotates around the center."""
    return affine(image, *rotation(degrees, (image.shape[1] - 1) / 2, (image.shape[0] - 1) / 2))


def rotation(degrees, x: float, y: float):
    """The rotation around (x, y), counterclockwise for positive angles, as the coefficients of `affine`."""
    radians = degrees * (math.pi / 180)
    cosine, sine = tf.cos(radians), tf.sin(radians)
    return (cosine, -sine, x - cosine * x + sine * y), (sine, cosine, y - sine * x - cosine * y)


def affine(image, to_x, to_y):
    """Affine transform: pixel (x, y) is the nearest one to (a x + b y + c, d x + e y + f), or gray outside.

    A gather, in a fifth of the time of ImageProjectiveTransformV3 and with the same pixels where none are equally near.
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


def translation(pixels_per_level: float, axis: int):
    """The operation `translate`, by so many of REFERENCE_SIZE pixels at each level."""

    def moved(image, level, sign, point):
        return translate(image, scaled_pixels(image, pixels_per_level * level), sign, axis)

    return moved


# Functions (image, level, sign, point) -> image, in the order of tf-models-official's RandAugment. The threshold of
# Solarize at level 10, 256, wraps to 0 in uint8, which inverts all values, and 384 (level 15) to 128, as there and in
# the code of AugReg.
OPERATIONS = {
    "AutoContrast": lambda image, level, sign, point: autocontrast(image),
    "Equalize": lambda image, level, sign, point: equalize(image),
    "Invert": lambda image, level, sign, point: tf.bitwise.invert(image),
    "Rotate": lambda image, level, sign, point: rotate(image, 3.0 * level * sign),
    "Posterize": lambda image, level, sign, point: posterize(image, posterize_bits(level)),
    "Solarize": lambda image, level, sign, point: solarize(image, int(level / 10 * 256) % 256),
    "Color": lambda image, level, sign, point: blend(tensorflow_gray(image), image, blend_factor(level)),
    "Contrast": lambda image, level, sign, point: tf.image.adjust_contrast(image, blend_factor(level)),
    "Brightness": lambda image, level, sign, point: blend(tf.zeros_like(image), image, blend_factor(level)),
    "Sharpness": lambda image, level, sign, point: blend(smoothed(image, 0.5), image, blend_factor(level)),
    "ShearX": lambda image, level, sign, point: affine(image, (1.0, 0.03 * level * sign, 0.0), (0.0, 1.0, 0.0)),
    "ShearY": lambda image, level, sign, point: affine(image, (1.0, 0.0, 0.0), (0.03 * level * sign, 1.0, 0.0)),
    "TranslateX": translation(10, axis=1),
    "TranslateY": translation(10, axis=0),
    "Cutout": lambda image, level, sign, point: cutout(image, scaled_pixels(image, int(4 * level)), point),
    "SolarizeAdd": lambda image, level, sign, point: solarize_add(image, min(int(11 * level), 255)),
}
# Those of big_vision's RandAugment (pp/archive/autoaugment.py), in its order: only Contrast differs.
BIG_VISION_OPERATIONS = OPERATIONS | {
    "Contrast": lambda image, level, sign, point: blend(pixels_per_gray_level(image), image, blend_factor(level)),
}
