"""Checks of single values of a recipe: types, NaN, and ranges. Names are those of Python: `optimizer.learning_rate`.

No TensorFlow import here. Combinations of fields are checked in training/field_checks.py and training/checks.py.
"""

import dataclasses
import math
import types
from collections.abc import Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from keras_vit.recipes.check_all import check_all


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
    "run.seed": Range(0, 2**32, below=True),  # as keras.utils.set_random_seed
    "run.steps_per_execution": AT_LEAST_1,
    "run.epoch_steps": AT_LEAST_1,
    "run.checkpoint_steps": AT_LEAST_1,
    "run.keep_checkpoints": AT_LEAST_1,
    "run.max_nonfinite_steps": AT_LEAST_1,
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
}
ABSTRACT = {int: Integral, float: Real}  # NumPy's numbers are among these
NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "None"}


def check_values(recipe):
    """Checks the type and range of every field of a recipe, and that no number is NaN or infinite.

    Args:
        recipe: A dataclass of `keras_vit.recipes.recipe`.

    Raises:
        ValueError: Values have another type, are NaN or infinite, or out of range; a line for each names the field.
    """
    check_all(*(partial(_check_value, *field) for field in _fields(recipe)))


def _check_value(name, value, hint):
    if not _matches(value, hint):
        raise ValueError(f"{name} must be {_expected(hint)}. Received: {value!r}")
    for number in value if isinstance(value, tuple | list) else (value,):
        if isinstance(number, Real) and not isinstance(number, Integral) and not math.isfinite(number):
            raise ValueError(f"{name} must be finite. Received: {value!r}")
        if name in RANGES and number is not None and not RANGES[name].allows(number):
            raise ValueError(f"{name} must be {RANGES[name]}. Received: {value!r}")


def _fields(section, prefix="") -> Iterator[tuple[str, Any, Any]]:
    """The name, value and type of every field, also of the dataclasses within."""
    hints: dict[str, Any] = get_type_hints(type(section))
    for field in dataclasses.fields(section):
        value, hint = getattr(section, field.name), hints[field.name]
        is_section = dataclasses.is_dataclass(hint)
        if not is_section:
            yield prefix + field.name, value, hint
        elif isinstance(value, hint):
            yield from _fields(value, f"{prefix}{field.name}.")
        else:
            raise ValueError(f"{prefix}{field.name} must be of the type {hint.__name__}. Received: {value!r}")


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
    return NAMES[hint]
