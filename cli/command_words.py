"""Command lines that other programs accept, and what to type here."""

import shlex
from pathlib import Path

from keras_vit_cli.given_paths import RUN_RECIPE
from keras_vit_cli.option_words import WORDS

FINETUNE_OUTPUT = "output"  # an option of finetune, which `train` does not have
# Options that are not similar to ours, which tyro would suggest, by command.
COMMAND_WORDS = {
    "classify": {"k": "top", "weights": "model"},
    "probe": {"k": "neighbors"},
    "few-shot": {"k": "shots"},
    "evaluate": {"data-path": "dataset folder:/path"},
    "export": {"data-path": "dataset folder:/path", "quantize": "formats dynamic-int8"},
    "finetune": {"model": "weights", "folder": FINETUNE_OUTPUT, "output-dir": FINETUNE_OUTPUT},
    "benchmark": {"n": "num-runs"},
}


def check_command_words(command: str, arguments):
    """Raises ValueError for options of other programs.

    Args:
        command: Such as "probe".
        arguments: What follows it.
    """
    found = []
    for argument in arguments:
        option = argument.partition("=")[0].removeprefix("--").replace("_", "-")
        if not argument.startswith("--"):
            continue
        if word := COMMAND_WORDS.get(command, {}).get(option):
            found.append(f"There is no option --{option}. Use --{word}")
        elif command == "finetune" and option != FINETUNE_OUTPUT and _of_train(option):
            found.append(
                f"There is no option --{option}: keras-vit finetune chooses the settings of the training. It prints "
                "them as a keras-vit train command, whose options you can change."
            )
    if found:
        raise ValueError("\n".join(found))


def _of_train(option) -> bool:
    return "." in option or option in WORDS or option in WORDS.values()


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
