"""3-Augment of DeiT III (arXiv 2204.07118, section 3.2) on (H, W, 3) uint8 of static shape. H W pixels.

One of grayscale, solarization and Gaussian blur, each with probability 1/3; then brightness, contrast and saturation by
random factors, in random order. Source: facebookresearch/deit, augment.py, whose operations are Pillow's and, for the
color jitter, torchvision's on Pillow's images. They equal these to one gray level.
"""

import itertools

import tensorflow as tf

from keras_vit.recipes.data.augment_ops import blend, gray, mean_gray, solarize

BLUR_RADIUS = (0.1, 2.0)
JITTER = 0.3  # of the factors, around 1
SOLARIZE_THRESHOLD = 128
PASSES = 3  # Pillow approximates a Gaussian by so many means over a box
ONE = 2.0**24  # of Pillow's fixed-point numbers
NUM_DRAWS = 6


def three_augment(image, draws):
    """Applies 3-Augment.

    Args:
        image: (H, W, 3) uint8.
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
    """Brightness, contrast and saturation, times a factor each: 0 is black, the mean brightness, or gray; 1 the image.

    Args:
        factors: Three scalars at least 0.
        order: A number in [0, 1) that chooses among the 6 orders.
    """
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

    Args:
        radius: The standard deviation in pixels, a scalar up to 2.
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
