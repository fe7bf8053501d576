"""Checks of a recipe's fields when it is created: types, NaN and ranges of single values. No TensorFlow import here."""

import dataclasses
import math
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import ClassVar, Literal, NamedTuple, Union, get_args, get_origin

from keras_vit.recipes.recipe.errors import RecipeError, check_all


class Range(NamedTuple):
    """Allowed numbers, from `low` to `high`; `above` and `below` exclude these two."""

    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False

    def allows(self, number) -> bool:
        above = self.low < number if self.above else self.low <= number
        return above and (number < self.high if self.below else number <= self.high)

    def __str__(self):
        if self.high == math.inf:
            return f"above {self.low}" if self.above else f"at least {self.low}"
        return f"in {'(' if self.above else '['}{self.low}, {self.high}{')' if self.below else ']'}"


AT_LEAST_0, AT_LEAST_1, ABOVE_0 = Range(0), Range(1), Range(0, above=True)
FRACTION, POSITIVE_FRACTION, RATE = Range(0, 1), Range(0, 1, above=True), Range(0, 1, below=True)
SEED = Range(0, 2**32, below=True)  # as keras.utils.set_random_seed
RANGES = {
    "architecture.depth": AT_LEAST_1,
    "architecture.width": AT_LEAST_1,
    "architecture.mlp_dim": AT_LEAST_1,
    "architecture.num_heads": AT_LEAST_1,
    "architecture.representation_size": AT_LEAST_1,
    "architecture.layer_scale": ABOVE_0,
    "architecture.dropout": RATE,
    "architecture.stochastic_depth": RATE,
    "architecture.patch_dropout": RATE,
    "data.image_size": AT_LEAST_1,
    "data.batch_size": AT_LEAST_1,
    "data.labels_per_class": AT_LEAST_1,
    "data.min_crop_area": POSITIVE_FRACTION,
    "data.resize_size": AT_LEAST_1,
    "data.mean": FRACTION,
    "data.std": POSITIVE_FRACTION,
    "data.evaluation_crop": POSITIVE_FRACTION,
    "data.shuffle_images": AT_LEAST_1,
    "data.max_corrupt": FRACTION,
    "data.augment.randaugment_layers": AT_LEAST_0,
    "data.augment.randaugment_magnitude": AT_LEAST_0,
    "data.augment.erasing": FRACTION,
    "data.augment.mixup_alpha": AT_LEAST_0,
    "data.augment.cutmix_alpha": AT_LEAST_0,
    "data.augment.mix_probability": FRACTION,
    "data.augment.repeats": AT_LEAST_1,
    "optimizer.learning_rate": AT_LEAST_0,
    "optimizer.warmup_steps": AT_LEAST_0,
    "optimizer.weight_decay": AT_LEAST_0,
    "optimizer.global_clipnorm": ABOVE_0,
    "optimizer.accumulation_steps": AT_LEAST_1,
    "optimizer.ema_momentum": RATE,
    "optimizer.layer_decay": POSITIVE_FRACTION,
    "optimizer.beta_2": RATE,
    "run.seed": SEED,
    "run.steps_per_execution": AT_LEAST_1,
    "run.epoch_steps": AT_LEAST_1,
    "run.checkpoint_steps": AT_LEAST_1,
    "run.keep_checkpoints": AT_LEAST_1,
    "run.max_nonfinite_steps": AT_LEAST_1,
    "run.join_seconds": AT_LEAST_1,
    "run.early_stopping_patience": AT_LEAST_1,
    "corrupted_fraction": POSITIVE_FRACTION,
    "masked_fraction": FRACTION,
    "replaced_fraction": FRACTION,
    "decoder_depth": AT_LEAST_1,
    "decoder_width": AT_LEAST_1,
    "decoder_heads": AT_LEAST_1,
    "label_smoothing": RATE,
    "total_epochs": ABOVE_0,
    "trainable_blocks": AT_LEAST_0,
    "temperature": ABOVE_0,
    "distillation_alpha": FRACTION,
    "learning_rates": AT_LEAST_0,
    "seeds": SEED,
}
ABSTRACT = {int: Integral, float: Real}  # NumPy's numbers are among these
NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "None"}


class Checked:
    """Base class of recipes and their sections, frozen dataclasses whose fields are checked when one is created.

    All methods whose names start with `_check_` are called, after the types and ranges of all fields.
    """

    place: ClassVar[str] = ""  # of a section in a recipe, such as "data.augment."
    deferred: ClassVar[bool] = False

    def __post_init__(self):
        if not Checked.deferred:
            check_values(self)
            check_all(*(getattr(self, name) for name in dir(self) if name.startswith("_check_")))


@contextmanager
def deferred_checks() -> Iterator[None]:
    """Creates recipes without checks, for `check_sections` to report all that is wrong together."""
    Checked.deferred = True
    try:
        yield
    finally:
        Checked.deferred = False


def check_sections(recipe):
    """Checks a recipe that was created under `deferred_checks`, and the sections within."""
    values = (getattr(recipe, field.name) for field in dataclasses.fields(recipe))
    check_all(*(partial(check_sections, value) for value in values if isinstance(value, Checked)), recipe.__post_init__)


def flat_fields(section) -> dict[str, object]:
    """The value of every field of a recipe, by names such as "data.augment.erasing"."""
    fields: dict[str, object] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        fields |= flat_fields(value) if isinstance(value, Checked) else {section.place + field.name: value}
    return fields


def check_values(section):
    """Checks the type and range of every field of a dataclass, and that no number is NaN or infinite."""
    check_all(
        *(
            partial(_check_value, section.place + field.name, getattr(section, field.name), field.type)
            for field in dataclasses.fields(section)
        )
    )


def _check_value(name, value, hint):
    if not _matches(value, hint):
        raise RecipeError(f"Expected {_expected(hint)}.", {name: value})
    for number in value if isinstance(value, tuple | list) else (value,):
        if isinstance(number, Real) and not isinstance(number, Integral) and not math.isfinite(number):
            raise RecipeError("Expected a finite number.", {name: value})
        if name in RANGES and number is not None and not RANGES[name].allows(number):
            raise RecipeError(f"Expected a number {RANGES[name]}.", {name: value})


def _matches(value, hint) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_matches(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        if not isinstance(value, tuple | list) or (parts[-1] is not Ellipsis and len(value) != len(parts)):
            return False
        return all(_matches(item, parts[0]) for item in value)
    if isinstance(value, bool):  # which Python counts among the integers
        return hint is bool
    return isinstance(value, ABSTRACT.get(hint, hint))


def _expected(hint) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(part) for part in parts)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, parts))
    if origin is tuple:
        return "a list of numbers" if parts[-1] is Ellipsis else f"{len(parts)} numbers"
    return NAMES.get(hint) or f"a dataclass {hint.__name__}"
