"""From an image of any size to the input of a model. Preprocessing belongs to the weights and is saved with them."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace

import numpy as np

from keras_vit.images import as_size
from keras_vit.images.pixel_range import CLIP, HALF, IMAGENET, PIXELS, checked_range, scaled

RESIZES = ("squash", "shortest", "shortest_area")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
ORIGINS = ("file", "table", "user", "assumed")
NAMED = {"imagenet": IMAGENET, "clip": CLIP, "half": HALF, "pixels": PIXELS}


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
            [-1, 1]. As many as images have channels: 3 for RGB, 1 for gray.
        origin: Where `mean` and `std` are from: "file" (stated by the checkpoint), "table" (published for these
            weights), "user" (given) or "assumed" (a guess). It does not count when two are compared.
        pixel_range: (low, high) of gray images with 16 bits, in files and in arrays of 16-bit integers: these values
            become 0 and 255, those between linearly, rounded, those outside are clipped. By default the upper 8 bits of
            files are used. Images of 8 bits are not changed.

    Raises:
        ValueError: A field has an unknown value or is out of range.
    """

    image_size: tuple[int, int]
    resize: str = "squash"
    crop_fraction: float = 1.0
    interpolation: str = "bilinear"
    antialias: bool = False
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    origin: str = field(default="user", compare=False)
    pixel_range: tuple[int, int] | None = None

    def __post_init__(self):
        object.__setattr__(self, "image_size", as_size(self.image_size))
        for name, known in (("resize", RESIZES), ("interpolation", INTERPOLATIONS), ("origin", ORIGINS)):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {getattr(self, name)!r}")
        if not 0.0 < self.crop_fraction <= 1.0:
            raise ValueError(f"`crop_fraction` must be above 0 and at most 1. Received: {self.crop_fraction}")
        if self.pixel_range is not None:
            try:
                object.__setattr__(self, "pixel_range", checked_range(self.pixel_range))
            except ValueError as error:
                raise ValueError(f"`pixel_range`: {error} Received: {self.pixel_range!r}") from error
        for name in ("mean", "std"):
            values = tuple(float(value) for value in np.ravel(getattr(self, name)))
            positive = name == "mean" or min(values, default=0) > 0
            if not values or not np.all(np.isfinite(values)) or not positive:
                above = " above 0" if name == "std" else ""
                raise ValueError(f"`{name}` must be numbers{above}, three for RGB. Received: {values}")
            if max(values) > 1:
                raise ValueError(f"`{name}` is of pixels in [0, 1]: divide it by 255. Received: {values}")
            object.__setattr__(self, name, values)
        if len(self.mean) != len(self.std):
            raise ValueError(f"`mean` and `std` must be as many numbers. Received: {self.mean} and {self.std}")

    @property
    def channels(self) -> int:
        """Number of channels of the images."""
        return len(self.mean)

    def of_channels(self, channels: int) -> "Preprocessing":
        """The same for images of other channels: each has the mean of the means of RGB, and that of the deviations."""
        if channels == self.channels:
            return self
        if self.channels != 3 and len({*zip(self.mean, self.std)}) > 1:
            raise ValueError(f"Expected mean and std of {channels} channels. Received: {self.mean} and {self.std}")
        mean, std = ((float(np.mean(values)),) * channels for values in (self.mean, self.std))
        return replace(self, mean=mean, std=std)

    def __call__(self, images):
        """Resizes, crops and scales images for the model.

        Args:
            images: Pixels in [0, 255], uint8 or float: (H, W, 3), (B, H, W, 3), or a list of (H, W, 3) of any size.
                Also gray and RGBA arrays, paths of image files and Pillow images, see `keras_vit.images.rgb.as_rgb`.

        Returns:
            (B, height, width, 3) float32, B = 1 for one image; of one channel, gray as Pillow's mode "L", for a single
            mean; of others for arrays of as many channels.

        Raises:
            FileNotFoundError: A file does not exist.
            ValueError: The images have another shape or no pixels; a file is not an image; pixels are not numbers or
                not in [0, 255], which floats may exceed by 128, as after bicubic interpolation; one of the images has
                floats that seem to be in [0, 1] or preprocessed already; or, without "squash", their size is unknown.
                Values of symbolic tensors, as inside tf.data, are not checked.
        """
        return scaled(self.pixels(images), self)

    def pixels(self, images):
        """Resizes and crops images without scaling: (B, height, width, 3) float32 in [0, 255]."""

        from keras_vit.images.resizing import resized

        return resized(images, self)

    def region(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The part of an image that remains after the crop, as (top, left, height, width) in the image's pixels."""
        from keras_vit.images.resizing import size_before_crop

        target = size_before_crop(self.image_size, self.crop_fraction)
        scales = target[0] / height, target[1] / width
        if self.resize != "squash":
            scales = (max(scales),) * 2
        sides = [min(round(kept / scale), old) for kept, scale, old in zip(self.image_size, scales, (height, width))]
        return (height - sides[0]) // 2, (width - sides[1]) // 2, *sides  # type: ignore[return-value]

    @classmethod
    def from_argument(cls, argument, image_size, default: "Preprocessing | None" = None) -> "Preprocessing":
        """From the argument of a model or of `keras_vit.load`, at the model's image size.

        Args:
            argument: None for the default; "imagenet", "clip" or "half", the mean and standard deviation of ImageNet or
                CLIP, or 0.5; "pixels" for [0, 255]; some fields by name; or a `Preprocessing`.
            image_size: Pixels, one number or (height, width).
            default: What is known of the weights; by default the defaults of the fields, which are then assumed.

        Raises:
            ValueError: An unknown name or field, or a field that is out of range.
        """
        if isinstance(argument, cls):
            return argument.at(image_size)
        changes = {} if argument is None else _named_fields(argument)
        default = default or cls(image_size, origin="assumed")
        scaling = {"mean", "std"} & changes.keys()
        if scaling and "origin" not in changes and (len(scaling) == 2 or default.origin != "assumed"):
            changes["origin"] = "user"
        return replace(default, **{**changes, "image_size": as_size(image_size)})

    @classmethod
    def from_config(cls, config: Mapping, source) -> "Preprocessing":
        """From the fields of `get_config`, as a file stores them; `source` names the file in errors."""
        try:
            return cls(**config)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source} has no preprocessing of this version of keras_vit: {error}") from error

    def at(self, image_size) -> "Preprocessing":
        """The same for another image size."""
        return replace(self, image_size=as_size(image_size))

    def get_config(self) -> dict:
        """The fields by name, for `from_config`; without a pixel range, it is left out."""
        return {name: value for name, value in asdict(self).items() if name != "pixel_range" or value}


def _named_fields(argument) -> dict:
    """The fields that a name stands for, or a copy of fields by name; raises ValueError for others."""
    if isinstance(argument, str):
        if argument in NAMED:
            return dict(NAMED[argument])
        near = difflib.get_close_matches(argument, NAMED, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"Expected the preprocessing {' or '.join(map(repr, NAMED))}, a dict of fields, or a "
            f"keras_vit.Preprocessing. Received: {argument!r}.{hint}"
        )
    names = [field.name for field in fields(Preprocessing)]
    expected = f"Expected fields of a preprocessing: {', '.join(names)}."
    if not isinstance(argument, Mapping):
        raise ValueError(f"{expected} Received: {argument!r}")
    if unknown := [name for name in argument if name not in names]:
        raise ValueError(f"{expected} Received: the fields {', '.join(map(str, unknown))}")
    return dict(argument)
