"""Options that other training programs call otherwise, and the words for them here."""

import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path

from keras_vit_cli.given_paths import RUN_RECIPE

EPOCHS = "total-epochs"
# Of timm's train.py, big_vision's configs and the Trainer of transformers.
WORDS = {
    "lr": "optimizer.learning-rate",
    "learning-rate": "optimizer.learning-rate",
    "opt": "optimizer.name",
    "wd": "optimizer.weight-decay",
    "weight-decay": "optimizer.weight-decay",
    "warmup": "optimizer.warmup-steps",
    "warmup-steps": "optimizer.warmup-steps",
    "clip-grad": "optimizer.global-clipnorm",
    "max-grad-norm": "optimizer.global-clipnorm",
    "grad-clip-norm": "optimizer.global-clipnorm",
    "gradient-accumulation-steps": "optimizer.accumulation-steps",
    "layer-decay": "optimizer.layer-decay",
    "ema": "optimizer.ema-momentum",
    "batch": "data.batch-size",
    "batch-size": "data.batch-size",
    "per-device-train-batch-size": "data.batch-size",
    "img-size": "data.image-size",
    "image-size": "data.image-size",
    "input-size": "data.image-size",
    "data-path": "data.dataset folder:/path",
    "train-dir": "data.dataset folder:/path",
    "mixup": "data.augment.mixup-alpha",
    "cutmix": "data.augment.cutmix-alpha",
    "drop": "architecture.dropout",
    "drop-path": "architecture.stochastic-depth",
    "model": "architecture.variant",
    "epochs": EPOCHS,
    "num-epochs": EPOCHS,
    "num-train-epochs": EPOCHS,
    "total-epochs": EPOCHS,
    "steps": "total-steps",
    "max-steps": "total-steps",
    "smoothing": "label-smoothing",
    "seed": "run.seed",
    "output": "run.folder",
    "output-dir": "run.folder",
    "resume": "run.resume",
    "bf16": "run.precision mixed_bfloat16",
    "fp16": "run.precision mixed_float16",
    "grad-checkpointing": "run.remat block",
}


def check_option_words(arguments, recipe, prefix: str = ""):
    """Raises a ValueError for options that have another name here; `keras-vit` reports other unknown ones.

    Args:
        arguments: The command line, such as ("--optimizer.lr", "0.1").
        recipe: Whose fields are the options.
        prefix: Of these options, such as "recipe.".
    """
    names = {prefix + name for name in _option_names(recipe)}
    errors = []
    for argument in arguments:
        option = argument.partition("=")[0].removeprefix("--").replace("_", "-")
        word = option.removeprefix(prefix).rpartition(".")[2]
        if argument.startswith("--") and option not in names and word in WORDS:
            use = WORDS[word]
            if use == EPOCHS and prefix + EPOCHS not in names:  # recipes without labels
                use = "total-steps, images * epochs / batch size"
            errors.append(f"There is no option --{option}. Use --{prefix}{use}")
    if errors:
        raise ValueError("\n".join(errors))


def _option_names(section, prefix=""):
    for field in fields(section):
        name, value = prefix + field.name.replace("_", "-"), getattr(section, field.name)
        if is_dataclass(value):
            yield from _option_names(value, f"{name}.")
        else:
            yield name


def check_name(command: str, arguments):
    """Raises ValueError if options precede the name of a recipe, or there is none.

    Args:
        command: "train" or "sweep".
        arguments: What follows it.
    """
    from keras_vit.recipes.configs import RECIPES

    if not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help"):
        return
    names = [word for word in arguments if word in RECIPES]
    values = [word.rpartition("=")[2] for word in arguments]
    runs = [value for value in values if (Path(value) / RUN_RECIPE).is_file()]  # such as that of --run.folder
    first = [*names, *runs, "NAME"][0]
    options = [word for word in arguments if word not in names]
    raise ValueError(
        f"The name of a recipe, or the folder of a run, precedes all options: keras-vit {command} "
        f"{shlex.join([first, *options])}\nkeras-vit train lists the recipes."
    )
