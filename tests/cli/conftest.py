import pytest

from keras_vit_cli.main import main


@pytest.fixture
def run_cli(capsys):
    """Runs `keras-vit` with arguments; returns the exit status, output and errors."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run
