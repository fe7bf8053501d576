"""Options of all commands that load weights: how images are prepared, if it is not as the weights state."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.inputs import is_exported, keras_class

OPTION = "--preprocessing"
Channels = tuple[float, float, float]


@dataclass(frozen=True)
class PreprocessingFlags:
    """How images are prepared, if it is not as the weights state.

    Args:
        preprocessing: "imagenet", "clip" or "half", the mean and standard deviation of ImageNet or CLIP, or 0.5;
            "pixels" for [0, 255]; or a JSON file with fields of `Preprocessing`, such as the preprocessing.json of an
            export. The other options override it.
        mean: Mean of each channel, of pixels in [0, 1].
        std: Standard deviation of each channel, of pixels in [0, 1].
        resize: "squash" ignores the aspect ratio; "shortest" keeps it, "shortest_area" as big_vision.
        crop_fraction: Fraction of the side that a central crop leaves.
        interpolation: How pixels are interpolated.
        pixel_range: Values of gray images with 16 bits that become black and white: 0 4095 for 12 bits.
    """

    preprocessing: Annotated[str | None, tyro.conf.arg(metavar="imagenet|clip|half|pixels|FILE.json")] = None
    mean: Annotated[Channels | None, tyro.conf.arg(metavar="R G B")] = None
    std: Annotated[Channels | None, tyro.conf.arg(metavar="R G B")] = None
    resize: Literal["squash", "shortest", "shortest_area"] | None = None
    crop_fraction: Annotated[float | None, tyro.conf.arg(metavar="FRACTION")] = None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"] | None = None
    pixel_range: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="LOW HIGH")] = None

    @property
    def single(self) -> dict:
        """The given ones of the options for single fields."""
        names = ("mean", "std", "resize", "crop_fraction", "interpolation", "pixel_range")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def fields(self) -> dict | None:
        """The argument `preprocessing` of `keras_vit.load`; None without options."""
        named = _named(self.preprocessing) if self.preprocessing else {}
        return {**named, **self.single} or None

    def load(self, weights, **arguments):
        """`keras_vit.load` with these options."""
        from keras_vit import load

        return load(weights, preprocessing=self.fields(), **arguments)

    def open(self, model: str):
        """`load` for anything that classifies: also an exported file, and a Keras model around one of ours.

        Raises ValueError if such a model, which states its preparation, is opened with another one.
        """
        around = keras_class(Path(model)) in ("Functional", "Sequential")
        if not around and not is_exported(model):
            return self.load(model)
        self.check_stated(model)
        if not around:
            from keras_vit.export.exported.opening import open_exported

            return open_exported(model)
        from keras_vit.class_names import own_class_names
        from keras_vit.models.load_keras import read_keras_file
        from keras_vit.models.outer_model import image_model

        opened = image_model(read_keras_file(model))
        opened.class_names = own_class_names(model, opened.num_classes) or opened.class_names
        return opened

    def check_stated(self, model: str | None):
        """Raises ValueError if an option is given: the model itself prepares its images."""
        if self != type(self)():
            fix = "export the model again with them" if model else "pass --model"
            model = model or "The default model"
            raise ValueError(f"{model} has its own preprocessing and image size. Omit these options, or {fix}.")


@dataclass(frozen=True)
class LoadingFlags(PreprocessingFlags):
    """How images are prepared, if it is not as the weights state.

    Args:
        image_size: Height and width of the model's images in pixels, or one number for a square. Positions are
            resampled to it.
    """

    image_size: Annotated[int | tuple[int, int] | None, tyro.conf.arg(metavar="HEIGHT [WIDTH]")] = None

    def load(self, weights, **arguments):
        """`keras_vit.load` with these options."""
        size = {} if self.image_size is None else {"image_size": self.image_size}
        return super().load(weights, **size, **arguments)


# The types of a command's field: of a model whose image size is chosen, and of one that a recipe trains at its own.
Loading = tyro.conf.OmitArgPrefixes[LoadingFlags]
Preparation = tyro.conf.OmitArgPrefixes[PreprocessingFlags]
AS_STATED = PreprocessingFlags()
AS_SAVED = LoadingFlags()


def with_recipe_fields(words: tuple[str, ...], prefix: str = "") -> tuple[str, ...]:
    """The options of a recipe, with `--data.mean` and `--data.std` in place of `--preprocessing`."""
    joined = tuple(part for word in words for part in (word.split("=", 1) if word.startswith(f"{OPTION}=") else [word]))
    if OPTION not in joined[:-1]:
        return words
    at = joined.index(OPTION)
    value = _named(joined[at + 1])
    if not {"mean", "std"} <= value.keys():
        raise ValueError(f"{joined[at + 1]} must have the fields mean and std. Received: {', '.join(value) or 'none'}")
    from keras_vit.images.preprocessing import Preprocessing

    scaling = Preprocessing.from_argument(value, 224).of_channels(3)  # raises for values that are none of RGB
    fields = [(f"--{prefix}data.{name}", *map(str, getattr(scaling, name))) for name in ("mean", "std")]
    return (*fields[0], *fields[1], *joined[:at], *joined[at + 2 :])


def _named(preprocessing) -> dict:
    from keras_vit.images.preprocessing import NAMED  # imports NumPy

    if preprocessing in NAMED:
        return dict(NAMED[preprocessing])
    path = Path(preprocessing)
    if path.suffix != ".json":
        raise ValueError(
            "Expected --preprocessing imagenet, clip, half, pixels or a file that ends in .json. Received: "
            f"{preprocessing}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path.absolute()} for --preprocessing.")
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object of fields. Received: a {type(content).__name__}")
    return {name: value for name, value in content.items() if name != "origin"}  # the user vouches for the file
