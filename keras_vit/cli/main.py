"""`keras-vit <command>`: the sub-commands are typed dataclasses; tyro makes their options and help texts."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status: 0, 1 for an error of the user's, 130 after Ctrl-C."""
    try:
        import tyro
    except ModuleNotFoundError:
        print("keras-vit needs tyro: pip install 'keras_vit[recipes,export,tensorflow]'", file=sys.stderr)
        return 1
    from keras_vit.cli.convert import Convert
    from keras_vit.cli.demo import Demo
    from keras_vit.cli.describe import Describe
    from keras_vit.cli.evaluate import Evaluate
    from keras_vit.cli.few_shot import FewShot

    commands = {
        "demo": Demo,
        "describe": Describe,
        "convert": Convert,
        "evaluate": Evaluate,
        "few-shot": FewShot,
    }
    command = tyro.extras.subcommand_cli_from_dict(
        commands, prog="keras-vit", description="The Vision Transformer for Keras.", args=arguments
    )
    try:
        command.run()
    except KeyboardInterrupt:
        print("\nStopped. Nothing that was there before has changed.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 1
    return 0
