"""`keras-vit <command>`: each command is a dataclass; tyro derives its options and help from the fields."""

import os
import re
import sys
from dataclasses import replace
from typing import Any

from keras_vit_cli.errors import check_temporary_folder, error_sentence
from keras_vit_cli.process import clean_up_on_sigterm, printing_assumptions, surviving_closed_pipes

DESCRIPTION = """The Vision Transformer for Keras.

--version prints the version. With --debug, an error prints its traceback.
"""
NVIDIA_DRIVER = "/proc/driver/nvidia"
TERMINATED = 75  # as keras_vit.recipes.checkpoints.checkpoints, which imports TensorFlow
# After Ctrl-C or SIGTERM, for commands that write checkpoints.
RESUME_HINTS = {
    "train": " The same command with --run.resume resumes from the last checkpoint.",
    "sweep": " The same command resumes from the last checkpoint.",
    "vtab": " The same command resumes from the last checkpoint.",
    "finetune": " The same command resumes from the last step.",
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
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    with (
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
            from keras_vit_cli.doctor import Doctor

            return Doctor().run()
        print("keras-vit requires tyro: pip install tyro. Only `keras-vit doctor` works without it.", file=sys.stderr)
        return 1
    command = _parse(arguments)
    check_temporary_folder()
    return command.run() or 0


def _parse(arguments: list[str]) -> Any:
    """The command, with its options set."""
    import tyro

    commands = _commands()
    command, name = [*arguments, "", ""][:2]
    if command in ("train", "sweep"):
        from keras_vit_cli.train import check_name

        check_name(command, arguments[1:])
    if command in ("train", "sweep") and name and not name.startswith("-"):
        # Options depend on the recipe: these commands parse the remaining arguments themselves.
        return commands[command](name, tuple(arguments[2:]))
    if command == "preflight" and any(re.search(r"^--npu(=|$)|\.tflite$", word) for word in arguments):
        from keras_vit_cli.preflight import PreflightNpu

        return tyro.cli(PreflightNpu, prog="keras-vit preflight", args=arguments[1:])
    if command == "preflight":
        preflight, changes = tyro.cli(
            commands[command], prog="keras-vit preflight", args=arguments[1:], return_unknown_args=True
        )
        return replace(preflight, changes=tuple(changes))
    if command in commands:  # alone: hints would name options of all commands, and the help of none
        return tyro.cli(commands[command], prog=f"keras-vit {command}", args=arguments[1:])
    return tyro.extras.subcommand_cli_from_dict(commands, prog="keras-vit", description=DESCRIPTION, args=arguments)


def _commands() -> dict[str, Any]:
    """The commands by name. Imported late, since most of them require tyro."""
    from keras_vit_cli.classify import Classify
    from keras_vit_cli.convert import Convert, Describe
    from keras_vit_cli.demo.command import Demo
    from keras_vit_cli.doctor import Doctor
    from keras_vit_cli.evaluate import Evaluate
    from keras_vit_cli.export import Benchmark, Export
    from keras_vit_cli.finetune import Finetune
    from keras_vit_cli.inspect.command import Inspect
    from keras_vit_cli.preflight import Preflight
    from keras_vit_cli.prepare import Prepare
    from keras_vit_cli.train import Sweep, Train
    from keras_vit_cli.transfer import FewShot, Probe, Vtab

    return {
        "classify": Classify,
        "finetune": Finetune,
        "demo": Demo,
        "train": Train,
        "sweep": Sweep,
        "vtab": Vtab,
        "preflight": Preflight,
        "prepare": Prepare,
        "describe": Describe,
        "convert": Convert,
        "evaluate": Evaluate,
        "few-shot": FewShot,
        "probe": Probe,
        "inspect": Inspect,
        "export": Export,
        "benchmark": Benchmark,
        "doctor": Doctor,
    }
