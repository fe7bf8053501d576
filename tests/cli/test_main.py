"""Common to all commands: help, version, interruption, and a missing tyro."""

import subprocess
import sys

import pytest

from keras_vit.recipes import configs
from keras_vit.recipes.runs import checkpoints
from keras_vit.version import __version__
from keras_vit_cli.commands.demo.command import Demo
from keras_vit_cli.commands.doctor.command import Doctor
from keras_vit_cli.commands.export.command import Export
from keras_vit_cli.commands.transfer import Vtab
from keras_vit_cli.main import TERMINATED, main


def test_without_tyro_only_the_doctor_works(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.setattr(Doctor, "run", lambda self: 7)
    assert main(["doctor"]) == 7
    assert main(["demo"]) == 1
    assert "pip install tyro" in capsys.readouterr().err


def test_version_of_the_package_as_a_program():
    found = subprocess.run([sys.executable, "-m", "keras_vit_cli", "--version"], capture_output=True, text=True)
    assert found.stdout == f"keras-vit {__version__}\n"


@pytest.mark.parametrize(
    "command,hint",
    [
        ("train cifar10-scratch", "--run.resume"),
        ("sweep digits-finetune", "The same command"),
        ("vtab x.npz", "The same command"),
        ("export x.keras", None),
        ("demo", None),
    ],
)
@pytest.mark.parametrize("saved", ["", "Saved step 6 in runs/x."])
def test_interrupt(command, hint, saved, monkeypatch, run_cli):
    def stop(*_):
        raise KeyboardInterrupt(saved)

    monkeypatch.setattr(configs, "check_dataset", stop)
    for kind in (Vtab, Export, Demo):
        monkeypatch.setattr(kind, "run", stop)
    status, _, errors = run_cli(*command.split())
    assert status == 130 and errors.startswith(f"\nInterrupted. {saved}".rstrip())
    assert hint in errors if hint else "resume" not in errors
    assert ("if there is one" in errors) == bool(hint and not saved)


def test_sigterm_in_training_tells_how_to_resume(monkeypatch, capsys):
    def stop(_):
        raise SystemExit(TERMINATED)

    monkeypatch.setattr(configs, "check_dataset", stop)
    with pytest.raises(SystemExit):
        main(["train", "cifar10-scratch"])
    assert "--run.resume" in capsys.readouterr().err and TERMINATED == checkpoints.TERMINATED
