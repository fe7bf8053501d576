"""Checks of the fields that describe how training images are transformed: no TensorFlow import here."""

from keras_vit.recipes.recipe import Augment, Data

LARGEST_LEVEL, LARGEST_TIMM_LEVEL = 30.0, 10.0


def check_transform_fields(data: Data):
    """Raises ValueError for fields that are out of range or inconsistent."""
    if data.crop == "resize" and data.resize_size < data.image_size:
        raise ValueError(
            f"data.image_size={data.image_size} must not exceed data.resize_size={data.resize_size}, the size that is "
            "cropped."
        )
    if data.scaled_decoding and data.crop != "inception":
        raise ValueError(
            "data.scaled_decoding=True is for data.crop='inception', which draws windows of an image. Received: "
            f"data.crop={data.crop!r}"
        )
    if data.scaled_decoding and data.cache:
        raise ValueError(
            "data.scaled_decoding=True has no effect with data.cache=True, which stores images decoded at their full "
            "size. Use data.cache=False or data.scaled_decoding=False."
        )
    if not 0.0 < data.min_crop_area <= 1.0:
        raise ValueError(f"data.min_crop_area must be above 0 and at most 1. Received: {data.min_crop_area}")
    augment = data.augment
    if not 0.0 <= augment.erasing <= 1.0:
        raise ValueError(f"data.augment.erasing must be a probability, in [0, 1]. Received: {augment.erasing}")
    for name in ("randaugment_layers", "mixup_alpha", "cutmix_alpha"):
        if getattr(augment, name) < 0:
            raise ValueError(
                f"data.augment.{name} must be at least 0, which turns it off. Received: {getattr(augment, name)}"
            )
    check_policies(augment)


def check_policies(augment: Augment):
    """Raises ValueError if two policies are set, or the magnitude is out of range."""
    off = {"randaugment_layers": 0, "autoaugment": None, "three_augment": False}
    chosen = [name for name, nothing in off.items() if getattr(augment, name) != nothing]
    if len(chosen) > 1:
        received = " and ".join(f"data.augment.{name}={getattr(augment, name)!r}" for name in chosen)
        unset = " or ".join(f"data.augment.{name}={off[name]!r}" for name in chosen)
        raise ValueError(
            f"RandAugment, AutoAugment and 3-Augment exclude each other. Received: {received}. Use {unset}."
        )
    largest = LARGEST_TIMM_LEVEL if augment.randaugment_policy == "timm" else LARGEST_LEVEL
    if not 0 <= augment.randaugment_magnitude <= largest:
        raise ValueError(
            f"data.augment.randaugment_magnitude must be in [0, {largest:g}] with "
            f"data.augment.randaugment_policy={augment.randaugment_policy!r}. Received: {augment.randaugment_magnitude}"
        )
