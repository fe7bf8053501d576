"""`keras-vit <command>`: each command is a dataclass, whose fields are its options."""

import difflib
import os
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from keras_vit.progress import without_progress
from keras_vit_cli.errors import check_temporary_folder, error_sentence
from keras_vit_cli.process import clean_up_on_sigterm, printing_assumptions, surviving_closed_pipes

# The option of a second word without one.
SECOND_WORDS = {"probe": "--dataset", "few-shot": "--dataset", "convert": "--output", "prepare": "--output"}
NVIDIA_DRIVER = "/proc/driver/nvidia"
TERMINATED = 75  # as keras_vit.recipes.runs.checkpoints, which imports TensorFlow
# After Ctrl-C or SIGTERM, for commands that write checkpoints.
RESUME_HINTS = {
    "train": " The same command with --run.resume resumes from the last checkpoint.",
    "sweep": " The same command resumes from the last checkpoint.",
    "vtab": " The same command resumes from the last checkpoint.",
    "finetune": " The same command resumes from the last step.",
}
# At the end of each command's help page.
EXAMPLES = {
    "classify": (
        "keras-vit classify cat.jpg photos/",
        "keras-vit classify cat.jpg --model model.tflite --json > found.json",
        "keras-vit classify photos/ --model runs/photos --attention evidence",
    ),
    "describe": ("keras-vit describe hf:google/vit-base-patch16-224", "keras-vit describe model.tflite --json"),
    "inspect": ("keras-vit inspect runs/photos --images photos --output attention.html",),
    "finetune": ("keras-vit finetune photos", "keras-vit finetune photos --class-weight balanced --output runs/second"),
    "train": (
        "keras-vit train                                    # lists the recipes",
        "keras-vit train cifar10-10ep --help mixup          # the options that have this word",
        "keras-vit train cifar10-10ep --run.folder runs/c10 --data.augment.mixup-alpha 0.2",
    ),
    "sweep": (
        "keras-vit sweep cifar10-10ep --help",
        "keras-vit sweep cifar10-10ep --learning-rates 1e-3 3e-3 --recipe.run.folder runs/c10-sweep",
    ),
    "prepare": ("keras-vit prepare photos --output gs://bucket/photos --against cifar10@test",),
    "preflight": (
        "keras-vit preflight --list",
        "keras-vit preflight imagenet1k-b16 --topology v5e:2x4 --run.remat block --data.batch-size 1024",
    ),
    "preflight --npu": ("keras-vit preflight model-int8.tflite --npu SM8750 --simulate photos",),
    "evaluate": (
        "keras-vit evaluate runs/photos --dataset folder:photos --per-class",
        "keras-vit evaluate model.tflite --dataset folder:photos --reference runs/photos",
        "keras-vit evaluate runs/c10 --dataset cifar10 --image-size 48 --json > accuracy.json",
    ),
    "report": ("keras-vit report runs/photos/predictions.csv --compare runs/photos-2/predictions.csv",),
    "probe": ("keras-vit probe hf:facebook/dinov2-base --dataset folder:photos --image-size 112",),
    "few-shot": ("keras-vit few-shot vit/imagenet21k/ViT-B_16 --dataset cifar100 --shots 1 5 10",),
    "vtab": ("keras-vit vtab vit/imagenet21k/ViT-B_16 --tasks pets dtd",),
    "export": (
        "keras-vit export runs/photos --output exported",
        "keras-vit export runs/c10 --dataset cifar10 --formats float16 int8 web saved-model --output exported",
    ),
    "convert": (
        "keras-vit convert B_16.npz --output vit/model.safetensors",
        "keras-vit convert hf:google/vit-base-patch16-224 --output vit-384.keras --image-size 384",
    ),
    "benchmark": ("keras-vit benchmark exported/*.tflite --num-threads 4",),
    "doctor": ("keras-vit doctor",),
    "demo": ("keras-vit demo --output runs/demo",),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command. Returns its exit status: 1 after an error, 130 after Ctrl-C.

    Raises:
        SystemExit: Wrong options, with status 2; SIGTERM, with 143, in training with 75 after saving a checkpoint.
        Exception: An error that is no mistake of the user; with --debug any.
    """
    # Only errors of TensorFlow's log. Without an NVIDIA driver it logs one at every start, about CUDA.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if os.path.exists(NVIDIA_DRIVER) else "3")
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug, quiet = "--debug" in arguments, "--quiet" in arguments
    arguments = [argument for argument in arguments if argument not in ("--debug", "--quiet")]
    if quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with (
        without_progress() if quiet else nullcontext(),
        surviving_closed_pipes(),
        clean_up_on_sigterm(),
        printing_assumptions(),
    ):
        try:
            return _run(arguments)
        except KeyboardInterrupt as stopped:
            saved = f" {stopped}" if str(stopped) else ""  # of a training, its checkpoint
            hint = _resume_hint(arguments)
            hint = hint if saved or not hint else f"{hint[:-1]}, if there is one."
            print(f"\nInterrupted.{saved}{hint}", file=sys.stderr)
            return 130
        except SystemExit as stopped:
            if stopped.code == TERMINATED and (hint := _resume_hint(arguments)):
                print(hint.lstrip(), file=sys.stderr)
            raise
        except Exception as error:
            sentence = error_sentence(error, "".join(arguments[:1]))
            if debug or sentence is None:
                raise
            print(f"keras-vit: {sentence}", file=sys.stderr)
            return 1


def _resume_hint(arguments) -> str:
    return RESUME_HINTS.get("".join(arguments[:1]), "")


def _run(arguments) -> int:
    if arguments == ["--version"]:
        from keras_vit.version import __version__

        print(f"keras-vit {__version__}")
        return 0
    try:
        import tyro  # noqa: F401
    except ModuleNotFoundError:
        if arguments[:1] == ["doctor"]:  # reports other missing packages
            from keras_vit_cli.commands.doctor.command import Doctor

            return Doctor().run()
        print("keras-vit requires tyro: pip install tyro. Only `keras-vit doctor` works without it.", file=sys.stderr)
        return 1
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(_overview())
        return 0
    command = _parse(arguments)
    check_temporary_folder()
    return command.run() or 0


def _overview() -> str:
    """The help page of all commands, a line each."""
    from keras_vit_cli.parser import summary

    lines = ["usage: keras-vit COMMAND [words and options]", "", "The Vision Transformer for Keras."]
    for group, commands in command_groups().items():
        lines += ["", group, *(f"  {name:11}{summary(kind)}" for name, kind in commands.items())]
    return "\n".join([*lines, "", "keras-vit COMMAND --help has its words, options and examples."])


def _parse(arguments: list[str]) -> Any:
    """The command, with its options set."""
    from keras_vit_cli.parser import HELP, parse

    commands = {name: kind for group in command_groups().values() for name, kind in group.items()}
    command, *words = arguments
    program = f"keras-vit {command}"
    if command not in commands:
        similar = difflib.get_close_matches(command, commands, n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise ValueError(f"There is no command {command}.{hint} keras-vit --help lists them.")
    if command in ("train", "sweep"):
        from keras_vit_cli.commands.train import check_name

        check_name(command, words)
        if words and words[0] not in HELP:
            # Options depend on the recipe: these commands parse the remaining words themselves.
            return commands[command](words[0], tuple(words[1:]))
    if command in SECOND_WORDS and len(words) > 1 and not any(word.startswith("-") for word in words[:2]):
        words.insert(1, SECOND_WORDS[command])
    if command == "preflight" and any(re.search(r"^--npu(=|$)|\.tflite$", word) for word in words):
        from keras_vit_cli.commands.preflight import PreflightNpu

        return parse(PreflightNpu, program, words, examples=EXAMPLES["preflight --npu"])
    if command == "preflight":
        preflight, changes = parse(commands[command], program, words, examples=EXAMPLES[command], returns_unknown=True)
        return replace(preflight, changes=tuple(changes))
    return parse(commands[command], program, words, examples=EXAMPLES[command])


def command_groups() -> dict[str, dict[str, Any]]:
    """The commands by name, in groups of one task. Imported late, since most of them require tyro."""
    from keras_vit_cli.commands.classify import Classify
    from keras_vit_cli.commands.convert import Convert, Describe
    from keras_vit_cli.commands.demo.command import Demo
    from keras_vit_cli.commands.doctor.command import Doctor
    from keras_vit_cli.commands.evaluate import Evaluate
    from keras_vit_cli.commands.export.command import Benchmark, Export
    from keras_vit_cli.commands.finetune.command import Finetune
    from keras_vit_cli.commands.inspect.command import Inspect
    from keras_vit_cli.commands.preflight import Preflight
    from keras_vit_cli.commands.prepare import Prepare
    from keras_vit_cli.commands.report.command import Report
    from keras_vit_cli.commands.train import Sweep, Train
    from keras_vit_cli.commands.transfer import FewShot, Probe, Vtab

    return {
        "Use a model": {"classify": Classify, "describe": Describe, "inspect": Inspect},
        "Train": {"finetune": Finetune, "train": Train, "sweep": Sweep, "prepare": Prepare, "preflight": Preflight},
        "Evaluate": {"evaluate": Evaluate, "report": Report, "probe": Probe, "few-shot": FewShot, "vtab": Vtab},
        "Export": {"export": Export, "convert": Convert, "benchmark": Benchmark},
        "This installation": {"doctor": Doctor, "demo": Demo},
    }
