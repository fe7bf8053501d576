"""RandAugment of timm, and 3-Augment of DeiT III, on (H, W, 3) uint8 of static shape: both are Pillow's operations.

They equal Pillow's to one gray level. H W pixels.

timm's RandAugment as DeiT applies it, "rand-m9-mstd0.5-inc1" (timm/data/auto_augment.py): geometric operations
interpolate with Pillow's bicubic kernel and fill with the mean color of the normalization. In the "increasing" set a
larger level always changes an image more. Cutout is not in it: timm erases at random instead. `level` is a scalar
tensor in [0, 10]; `sign` a scalar tensor, 1.0 or -1.0.

3-Augment (arXiv 2204.07118, section 3.2; facebookresearch/deit, augment.py): one of grayscale, solarization and
Gaussian blur, each with probability 1/3; then brightness, contrast and saturation by random factors, in random order.
"""

import itertools

import tensorflow as tf

from keras_vit.recipes.data.augment_ops import (
    autocontrast,
    blend,
    equalize,
    gray,
    mean_gray,
    rotation,
    smoothed,
    solarize,
    solarize_add,
)
from keras_vit.recipes.recipe.data import LARGEST_MAGNITUDES

LARGEST_LEVEL = LARGEST_MAGNITUDES["timm"]
PROBABILITY = 0.5  # of each drawn operation
MAGNITUDE_STD = 0.5
SAME_X, SAME_Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)  # coefficients of a transform that keeps a coordinate


def increasing_operations(fill: tuple[int, int, int]) -> dict:
    """Functions (image, level, sign) -> image by name, in timm's order; `fill` is the color outside of the image."""

    def enhance(degenerate):
        def enhanced(image, level, sign):
            factor = tf.maximum(0.1, 1.0 + sign * 0.9 * level / LARGEST_LEVEL)
            return blend(degenerate(image), image, factor)

        return enhanced

    def move_x(coefficients):
        return lambda image, level, sign: affine_bicubic(image, coefficients(image, sign * level), SAME_Y, fill)

    def move_y(coefficients):
        return lambda image, level, sign: affine_bicubic(image, SAME_X, coefficients(image, sign * level), fill)

    return {
        "AutoContrast": lambda image, level, sign: autocontrast(image),
        "Equalize": lambda image, level, sign: equalize(image),
        "Invert": lambda image, level, sign: tf.bitwise.invert(image),
        "Rotate": lambda image, level, sign: rotate_bicubic(image, 30.0 * sign * level / LARGEST_LEVEL, fill),
        "PosterizeIncreasing": lambda image, level, sign: posterize_bits_less(image, level),
        "SolarizeIncreasing": lambda image, level, sign: solarize(image, 256 - _integer(level, 256)),
        "SolarizeAdd": lambda image, level, sign: solarize_add(image, _integer(level, 110)),
        "ColorIncreasing": enhance(gray),
        "ContrastIncreasing": enhance(mean_gray),
        "BrightnessIncreasing": enhance(tf.zeros_like),
        "SharpnessIncreasing": enhance(lambda image: smoothed(image, 6.5)),
        "ShearX": move_x(lambda image, level: (1.0, 0.03 * level, 0.0)),
        "ShearY": move_y(lambda image, level: (0.03 * level, 1.0, 0.0)),
        "TranslateXRel": move_x(lambda image, level: (1.0, 0.0, 0.045 * level * image.shape[1])),
        "TranslateYRel": move_y(lambda image, level: (0.0, 1.0, 0.045 * level * image.shape[0])),
    }


def random_level(magnitude: float, draw):
    """A level from N(magnitude, MAGNITUDE_STD) in [0, 10]: the inverse of the normal distribution at `draw`."""
    return tf.clip_by_value(magnitude + MAGNITUDE_STD * tf.math.ndtri(draw), 0.0, LARGEST_LEVEL)


def posterize_bits_less(image, level):
    """Keeps the highest 4 bits at level 0, none at level 10."""
    mask = 256 - tf.bitwise.left_shift(1, 4 + _integer(level, 4))  # 0 without any bits
    return tf.bitwise.bitwise_and(image, tf.cast(mask, tf.uint8))


def rotate_bicubic(image, degrees, fill):
    """Rotates around the center of the image, counterclockwise for positive angles."""
    return affine_bicubic(image, *rotation(degrees, image.shape[1] / 2, image.shape[0] / 2), fill)


def affine_bicubic(image, to_x, to_y, fill):
    """Pillow's Image.transform: (x, y), pixel centers at halves, comes from (a x + b y + c, d x + e y + f)."""
    height, width, _ = image.shape
    x, y = tf.range(width, dtype=tf.float32)[None] + 0.5, tf.range(height, dtype=tf.float32)[:, None] + 0.5
    # The zeros broadcast coefficients that depend on one coordinate only.
    from_x, from_y = (a * x + b * y + c + tf.zeros((height, width)) for a, b, c in (to_x, to_y))
    inside = (from_x >= 0.0) & (from_x < width) & (from_y >= 0.0) & (from_y < height)
    # A transform along one axis needs no interpolation along the other: a quarter of the time.
    columns, column_weights = _taps(from_x, width, interpolate=to_x is not SAME_X)
    rows, row_weights = _taps(from_y, height, interpolate=to_y is not SAME_Y)
    pixels = tf.reshape(tf.cast(image, tf.float32), (height * width, 3))
    value = tf.zeros((height, width, 3))
    for row, row_weight in zip(rows, row_weights):
        for column, column_weight in zip(columns, column_weights):
            value += (row_weight * column_weight)[..., None] * tf.gather(pixels, row * width + column)
    # Pillow truncates sums in float64; the small number undoes what float32 loses below an integer.
    value = tf.cast(tf.clip_by_value(value + 1e-3, 0.0, 255.0), tf.uint8)
    return tf.where(inside[..., None], value, tf.constant(fill, tf.uint8))


def _taps(position, side, interpolate):
    """Indices and weights, four each of (H, W), of Pillow's bicubic kernel (a = -1) along one axis."""
    first = tf.floor(position - 0.5)
    if not interpolate:
        return [tf.cast(first, tf.int32)], [tf.ones_like(first)]
    d = position - 0.5 - first
    weights = (-d + d**2 * (2.0 - d), 1.0 + d**2 * (d - 2.0), d + d**2 * (1.0 - d), d**2 * (d - 1.0))
    first = tf.cast(first, tf.int32)
    return [tf.clip_by_value(first + i, 0, side - 1) for i in (-1, 0, 1, 2)], weights


def _integer(level, scale):
    """int(level / 10 * scale) of timm."""
    return tf.cast(level / LARGEST_LEVEL * scale, tf.int32)


BLUR_RADIUS = (0.1, 2.0)
JITTER = 0.3  # of the factors, around 1
SOLARIZE_THRESHOLD = 128
PASSES = 3  # Pillow approximates a Gaussian by so many means over a box
ONE = 2.0**24  # of Pillow's fixed-point numbers
NUM_DRAWS = 6


def three_augment(image, draws):
    """Applies 3-Augment.

    Args:
        draws: (NUM_DRAWS,) random numbers in [0, 1): the operation, the radius of the blur, the factors of brightness,
            contrast and saturation, and their order.
    """
    choice, radius, *factors, order = tf.unstack(draws)
    low, high = BLUR_RADIUS
    image = tf.switch_case(
        tf.cast(3.0 * choice, tf.int32),
        [
            lambda: grayscale(image),
            lambda: solarize(image, SOLARIZE_THRESHOLD),
            lambda: gaussian_blur(image, low + (high - low) * radius),
        ],
    )
    return color_jitter(image, [1.0 + JITTER * (2.0 * factor - 1.0) for factor in factors], order)


def grayscale(image):
    """The brightness in all three channels."""
    return tf.repeat(gray(image), 3, axis=-1)


def color_jitter(image, factors, order):
    """Brightness, contrast, saturation, times a factor each: 0 is black, the mean brightness or gray, 1 the image."""
    orders = tf.constant(list(itertools.permutations(range(3))))
    for which in tf.unstack(orders[tf.cast(6.0 * order, tf.int32)]):
        image = tf.switch_case(
            which,
            [
                lambda image=image, factor=factor, degenerate=degenerate: blend(degenerate(image), image, factor)
                for degenerate, factor in zip((tf.zeros_like, mean_gray, gray), factors)
            ],
        )
    return image


def gaussian_blur(image, radius):
    """Pillow's GaussianBlur, which rounds after each of its 6 means; pixels of the edge stand for those outside.

    A mean is over 2 l + 1 pixels and, with a smaller weight, one more on each side, such that the variance of three of
    them is that of the Gaussian (Gwosdek et al., "Theoretical foundations of Gaussian convolution by extended box
    filtering").
    """
    variance = radius**2 / PASSES
    length = tf.floor((tf.sqrt(12.0 * variance + 1.0) - 1.0) / 2.0)  # l: 0 or 1
    outer = (2 * length + 1) * (length * (length + 1) - 3 * variance) / (6 * (variance - (length + 1) ** 2))
    # Pillow's integer weights, of which float64 has exact sums: halves are frequent, and rounded as there.
    inside = tf.floor(ONE / (2.0 * (length + outer) + 1.0))
    edge = tf.floor((ONE - (2.0 * length + 1.0) * inside) / 2.0)
    weights = (inside, tf.where(length > 0, inside, edge), tf.where(length > 0, edge, 0.0))
    weights = [tf.cast(weight, tf.float64) for weight in weights]
    pixels = tf.cast(image, tf.float64)
    for axis in (1, 0):
        for _ in range(PASSES):
            pixels = _mean_along(pixels, axis, weights)
    return tf.cast(pixels, tf.uint8)


def _mean_along(pixels, axis, weights):
    """Rounded means of five pixels in a row, whose weights are those of the distances 0, 1 and 2."""
    side = pixels.shape[axis]
    first, last = (tf.gather(pixels, [i, i], axis=axis) for i in (0, side - 1))
    padded = tf.concat([first, pixels, last], axis)

    def moved(by):
        begin, size = [0, 0, 0], list(pixels.shape)
        begin[axis] = 2 + by
        return tf.slice(padded, begin, size)

    total = weights[0] * pixels + weights[1] * (moved(-1) + moved(1)) + weights[2] * (moved(-2) + moved(2))
    return tf.floor(total / ONE + 0.5)
