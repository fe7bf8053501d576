"""The operations of AutoAugment's policy for CIFAR-10, on (H, W, 3) uint8 of static shape."""

from keras_vit.recipes.data.augment_ops import blend_factor, operations, scaled_pixels, solarize, translate
from keras_vit.recipes.data.augment_timm import blend, mean_gray


def cifar10_operations() -> dict:
    """Functions (image, level, sign, point) -> image by name, of which four differ from `augment_ops.operations`.

    In the code of the policy's authors higher levels invert more values, translations are up to 10 of 32 pixels, and
    the contrast is Pillow's, around the mean brightness, where tf-models-official has the mean of each channel
    (tensorflow/models, research/autoaugment/augmentation_transforms.py).
    """
    return operations() | {
        "Solarize": lambda image, level, sign, point: solarize(image, 256 - int(level / 10 * 256)),
        "TranslateX": lambda image, level, sign, point: translate(image, scaled_pixels(image, 7 * level), sign, axis=1),
        "TranslateY": lambda image, level, sign, point: translate(image, scaled_pixels(image, 7 * level), sign, axis=0),
        "Contrast": lambda image, level, sign, point: blend(mean_gray(image), image, blend_factor(level)),
    }
