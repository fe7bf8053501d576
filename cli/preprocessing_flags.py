"""Options of all commands that load weights: how images are prepared, if it is not as the weights state."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

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
        resize: "squash", "shortest" or "shortest_area", see `Preprocessing`.
        crop_fraction: Fraction of the side that remains after the central crop.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
    """

    preprocessing: str | None = None
    mean: Channels | None = None
    std: Channels | None = None
    resize: Literal["squash", "shortest", "shortest_area"] | None = None
    crop_fraction: float | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"] | None = None

    @property
    def single(self) -> dict:
        """The given ones of the options for single fields."""
        return {name: value for name, value in asdict(self).items() if name != "preprocessing" and value is not None}

    def fields(self) -> dict | None:
        """The argument `preprocessing` of `keras_vit.load`; None without options."""
        named = _named(self.preprocessing) if self.preprocessing else {}
        return {**named, **self.single} or None

    def load(self, weights, **arguments):
        """`keras_vit.load` with these options."""
        from keras_vit import load

        return load(weights, preprocessing=self.fields(), **arguments)


# The type of a command's field, and its default.
Preparation = tyro.conf.OmitArgPrefixes[PreprocessingFlags]
AS_STATED = PreprocessingFlags()


def with_recipe_fields(words: tuple[str, ...], prefix: str = "") -> tuple[str, ...]:
    """The options of a recipe, with `--data.mean` and `--data.std` in place of `--preprocessing`."""
    joined = tuple(part for word in words for part in (word.split("=", 1) if word.startswith(f"{OPTION}=") else [word]))
    if OPTION not in joined[:-1]:
        return words
    at = joined.index(OPTION)
    value = _named(joined[at + 1])
    if not {"mean", "std"} <= value.keys():
        raise ValueError(f"{joined[at + 1]} must have the fields mean and std. Received: {', '.join(value) or 'none'}")
    from keras_vit.preprocessing import Preprocessing

    scaling = Preprocessing.from_argument(value, 224).of_channels(3)  # raises for values that are none of RGB
    fields = [(f"--{prefix}data.{name}", *map(str, getattr(scaling, name))) for name in ("mean", "std")]
    return (*fields[0], *fields[1], *joined[:at], *joined[at + 2 :])


def _named(preprocessing) -> dict:
    from keras_vit.preprocessing import NAMED  # imports NumPy

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
