"""`keras-vit <command>`: the sub-commands are typed dataclasses; tyro makes their options and help texts."""

import sys
from dataclasses import replace

# Of the commands that train for hours; the others begin anew.
GOES_ON = {
    "train": " The same command with --run.resume goes on from the last checkpoint, if there is one.",
    "sweep": " The same command goes on from the last checkpoint.",
    "vtab": " The same command goes on from the last checkpoint.",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status: 0, 1 for an error of the user's, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        import tyro
    except ModuleNotFoundError:
        if arguments[:1] == ["doctor"]:  # it finds what else is missing
            from keras_vit_cli.doctor.command import Doctor

            return Doctor(json="--json" in arguments).run()
        print("keras-vit needs tyro: pip install tyro. keras-vit doctor works without.", file=sys.stderr)
        return 1
    commands, command = _commands(), None
    if len(arguments) > 1 and arguments[0] in ("train", "sweep") and not arguments[1].startswith("-"):
        # What can be changed depends on the recipe, so that these two read the rest themselves.
        command = commands[arguments[0]](arguments[1], tuple(arguments[2:]))
    try:
        if arguments[:1] == ["preflight"]:
            prog = "keras-vit preflight"
            command, changes = tyro.cli(commands["preflight"], prog=prog, args=arguments[1:], return_unknown_args=True)
            command = replace(command, changes=tuple(changes))
        command = command or tyro.extras.subcommand_cli_from_dict(
            commands, prog="keras-vit", description="The Vision Transformer for Keras.", args=arguments
        )
        status = command.run()
    except KeyboardInterrupt:
        print(f"\nStopped.{GOES_ON.get(''.join(arguments[:1]), '')}", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 1
    return status or 0


def _commands():
    """Every command's class by its name; they need tyro."""
    from keras_vit_cli.benchmark import Benchmark
    from keras_vit_cli.convert import Convert
    from keras_vit_cli.demo.command import Demo
    from keras_vit_cli.describe import Describe
    from keras_vit_cli.doctor.command import Doctor
    from keras_vit_cli.evaluate import Evaluate
    from keras_vit_cli.export.command import Export
    from keras_vit_cli.few_shot import FewShot
    from keras_vit_cli.inspect.command import Inspect
    from keras_vit_cli.preflight import Preflight
    from keras_vit_cli.prepare import Prepare
    from keras_vit_cli.probe import Probe
    from keras_vit_cli.sweep import Sweep
    from keras_vit_cli.train import Train
    from keras_vit_cli.vtab import Vtab

    return {
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
