"""Recipe fields in error messages as flags: `optimizer.warmup_steps=20` becomes `--optimizer.warmup-steps 20`.

Recipes are also run from Python, so their errors name fields as Python does.
"""

import re
import shlex
from dataclasses import fields, is_dataclass

from keras_vit.recipes.recipe import (
    Architecture,
    Augment,
    Data,
    Distillation,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Run,
)

SECTIONS = {"architecture": Architecture, "data": Data, "data.augment": Augment, "optimizer": Optimizer, "run": Run}
NESTED = [f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in fields(kind)]
TOP_LEVEL = {
    field.name for kind in (Distillation, MaskedPatch, MaskedAutoencoder) for field in fields(kind)
} - SECTIONS.keys()
# Names such as `loss` are also words: they are fields only if a value follows.
NAMES = sorted([*NESTED, *(name for name in TOP_LEVEL if "_" in name)], key=len, reverse=True)
WORDS = sorted(name for name in TOP_LEVEL if "_" not in name)
VALUE = r"'[^']*'|\([^)]*\)|[\w./:*+-]*\w"
# Quoted names are those in a file.
FIELD = re.compile(rf"(?<![\w./'-])(?:({'|'.join(NAMES)})(?:=({VALUE}))?|({'|'.join(WORDS)})=({VALUE}))(?![\w/])")


def fields_to_flags(message: str, prefix: str = "") -> str:
    """Replaces the recipe fields in a message by flags of the command line.

    Args:
        prefix: Prefix of the flags, such as "recipe." for a recipe within another dataclass.
    """
    return FIELD.sub(lambda match: _flag(prefix + (match[1] or match[3]), match[2] or match[4]), message)


def recipe_flags(recipe, base, prefix: str = "") -> list[str]:
    """The options that make `base` this recipe, quoted for a shell, such as "--data.mean 0.5 0.5 0.5"."""
    flags = []
    for field in fields(recipe):
        value, name = getattr(recipe, field.name), prefix + field.name
        if is_dataclass(value):
            flags += recipe_flags(value, getattr(base, field.name), f"{name}.")
        elif value != getattr(base, field.name):
            words = (shlex.quote(str(word)) for word in (value if isinstance(value, tuple) else (value,)))
            flags.append(_flag(name, str(value)) if isinstance(value, bool) else " ".join([_flag(name, None), *words]))
    return flags


def _flag(name: str, value: str | None) -> str:
    flag = "--" + name.replace("_", "-")
    if value is None or value == "True":
        return flag
    if value == "False":
        section, dot, field = flag.removeprefix("--").rpartition(".")
        return f"--{section}{dot}no-{field}"
    return f"{flag} {value.strip('()').replace(',', '') if value.startswith('(') else value.strip(chr(39))}"
