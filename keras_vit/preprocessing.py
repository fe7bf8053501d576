"""From an image of any size to the input of a model. Preprocessing belongs to the weights and is saved with them."""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
from keras import ops

from keras_vit.images import as_size
from keras_vit.rgb import as_rgb

RESIZES = ("squash", "shortest", "shortest_area")
OVERSHOOT = 128  # of float pixels beyond [0, 255]
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


@dataclass(frozen=True)
class Preprocessing:
    """How images were resized, cropped and scaled when the weights were trained or evaluated.

    Args:
        image_size: (height, width) of the model's input in pixels.
        resize: "squash" ignores the aspect ratio (the paper's code in evaluation); "shortest" keeps it and resizes the
            shorter side, as timm and torchvision; "shortest_area" does so as big_vision's `resize_small` and
            `central_crop`: each pixel is the mean of the area that it covers, whatever `interpolation` and `antialias`.
        crop_fraction: Fraction of the resized side that remains after a center crop, in (0, 1]: 0.875 is 224 of 256.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        antialias: Whether images are smoothed when they shrink, as Pillow does and `tf.image.resize` does not.
        mean, std: Mean and standard deviation of each channel, of pixels in [0, 1]; with 0.5 and 0.5 the output is in
            [-1, 1].

    Raises:
        ValueError: A field has an unknown value or is out of range.
    """

    image_size: tuple[int, int]
    resize: str = "squash"
    crop_fraction: float = 1.0
    interpolation: str = "bilinear"
    antialias: bool = False
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self):
        object.__setattr__(self, "image_size", as_size(self.image_size))
        for name, known in (("resize", RESIZES), ("interpolation", INTERPOLATIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {getattr(self, name)!r}")
        if not 0.0 < self.crop_fraction <= 1.0:
            raise ValueError(f"`crop_fraction` must be above 0 and at most 1. Received: {self.crop_fraction}")
        for name in ("mean", "std"):
            values = tuple(float(value) for value in np.ravel(getattr(self, name)))
            if len(values) != 3 or (name == "std" and min(values) <= 0):
                above = " above 0" if name == "std" else ""
                raise ValueError(f"`{name}` must be three numbers{above}. Received: {values}")
            object.__setattr__(self, name, values)

    def __call__(self, images):
        """Resizes, crops and scales images for the model.

        Args:
            images: Pixels in [0, 255], uint8 or float: (H, W, 3), (B, H, W, 3), or a list of (H, W, 3) of any size.
                Also gray and RGBA arrays, paths of image files and Pillow images, see `keras_vit.rgb.as_rgb`.

        Returns:
            (B, height, width, 3) float32, B = 1 for one image.

        Raises:
            FileNotFoundError: A file does not exist.
            ValueError: The images have another shape or no pixels; a file is not an image; pixels are not numbers or
                not in [0, 255], which floats may exceed by 128, as after bicubic interpolation; one of the images has
                floats that seem to be in [0, 1] or [-1, 1] already; or, without "squash", their size is unknown. Values
                of symbolic tensors, as inside tf.data, are not checked.
        """
        mean, std = (255.0 * np.array(values, "float32") for values in (self.mean, self.std))
        return (self._resized(images) - mean) / std

    def pixels(self, images):
        """Resizes and crops images without scaling, for exported models: (B, height, width, 3) float32 in [0, 255]."""
        return ops.clip(self._resized(images), 0.0, 255.0)  # bicubic resizing overshoots

    def region(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The part of an image that remains after the crop, as (top, left, height, width) in the image's pixels."""
        target = size_before_crop(self.image_size, self.crop_fraction)
        scales = target[0] / height, target[1] / width
        if self.resize != "squash":
            scales = (max(scales),) * 2
        sides = [min(round(kept / scale), old) for kept, scale, old in zip(self.image_size, scales, (height, width))]
        return (height - sides[0]) // 2, (width - sides[1]) // 2, *sides  # type: ignore[return-value]

    @classmethod
    def from_argument(cls, given, image_size) -> "Preprocessing":
        """From a model's argument: None for the default, a `Preprocessing` or its config; at the model's image size."""
        if given is None:
            return cls(image_size)
        return (given if isinstance(given, cls) else cls(**given)).at(image_size)

    def at(self, image_size) -> "Preprocessing":
        """The same for another image size."""
        return replace(self, image_size=as_size(image_size))

    def get_config(self) -> dict:
        """The fields by name; `Preprocessing(**config)` creates it again."""
        return asdict(self)

    def _resized(self, images):
        """See `__call__`: (B, height, width, 3) float32 pixels."""
        images = images if isinstance(images, (list, tuple)) and images else [images]
        images = [as_rgb(image) for image in images]
        _check_range(images)
        batches = [ops.cast(image if len(image.shape) == 4 else image[None], "float32") for image in images]
        resized = [self._resized_batch(batch) for batch in batches]
        return resized[0] if len(resized) == 1 else ops.concatenate(resized, axis=0)

    def _resized_batch(self, pixels):
        """Resizes (B, H, W, 3) and crops the center: (B, height, width, 3)."""
        size, (height, width) = self.image_size, pixels.shape[1:3]
        target = size_before_crop(size, self.crop_fraction)
        if self.resize != "squash":
            if None in (height, width):
                raise ValueError(
                    f"resize={self.resize!r} requires images of a known size. Received: (height, width) = "
                    f"{(height, width)}. Inside tf.data, for one image: tf.ensure_shape(tf.py_function("
                    f"lambda x: preprocess(x)[0], [image], tf.float32), {(*size, 3)})."
                )
            scale = max(target[0] / height, target[1] / width)
            if self.resize == "shortest_area":
                return _area_resized(pixels, [round(side * scale) for side in (height, width)], size)
            target = tuple(max(least, int(side * scale + 1e-6)) for side, least in zip((height, width), target))
        if target != (height, width):
            pixels = ops.image.resize(
                pixels,
                target,
                interpolation=self.interpolation,
                antialias=self.antialias,
                data_format="channels_last",
            )
        top, left = (round((resized - side) / 2) for resized, side in zip(target, size))
        return pixels[:, top : top + size[0], left : left + size[1]]  # (B, height, width, 3)


def _area_resized(pixels, target, size):
    """Resizes (B, H, W, 3) to `target` by the mean of areas, and crops the center: (B, *size, 3)."""
    rows, columns = (
        _area_weights(old, new)[(new - side) // 2 :][:side] for old, new, side in zip(pixels.shape[1:3], target, size)
    )
    return ops.einsum("jw,bhwc,ih->bijc", columns, pixels, rows)


def _area_weights(old: int, new: int) -> np.ndarray:
    """(new, old) float32: the fraction that each of `old` pixels has of each of `new` intervals of the same length."""
    edges, pixels = np.arange(new + 1) * (old / new), np.arange(old)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (np.maximum(overlap, 0.0) * (new / old)).astype("float32")


def size_before_crop(image_size: tuple[int, int], crop_fraction: float) -> tuple[int, int]:
    """(height, width) to resize to so that a center crop of this fraction has `image_size`."""
    # The small addend keeps 224 / 0.875 at 256 despite rounding.
    height, width = (math.floor(side / crop_fraction + 1e-6) for side in image_size)
    return height, width


def _check_range(images):
    """Images in [0, 1] would become almost black, others almost white, without any error."""
    for array in map(_values, images):
        if array is None:
            continue
        pixels = array.reshape(-1, math.prod(array.shape[-3:]))  # (B, H W 3)
        low, high, is_float = pixels.min(axis=1), pixels.max(axis=1), array.dtype.kind not in "iu"
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("Expected pixels in [0, 255]. Received: values that are not finite. Replace or drop them.")
        margin = OVERSHOOT if is_float else 0
        if low.min() < -margin or high.max() > 255 + margin:
            raise ValueError(
                f"Expected pixels in [0, 255]. Received: {array.dtype} between {low.min():.6g} and {high.max():.6g}. "
                "Scale them; 16-bit images // 256 have 8 bits."
            )
        # All zeros may be a black image.
        for least, largest in zip(low[high <= 1.0], high[high <= 1.0]):
            if is_float and (least, largest) != (0.0, 0.0):
                raise ValueError(
                    f"Expected pixels in [0, 255]. Received: floats between {least:.3g} and {largest:.3g}, which look "
                    "preprocessed already. Pass them to the model directly, or multiply images in [0, 1] by 255."
                )


def _values(image):
    """The pixels as an array; None for 8 bits, and for a symbolic tensor, which has no values yet."""
    if getattr(image.dtype, "name", str(image.dtype)) in ("uint8", "bool"):
        return None
    try:
        array = np.asarray(image)
    except (NotImplementedError, TypeError, ValueError):  # raised by TensorFlow, JAX and Keras for symbolic tensors
        return None
    return array if array.dtype.kind in "iu" else array.astype("float32", copy=False)  # also bfloat16
