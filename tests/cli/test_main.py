"""Common to all commands: help, error messages, interruption, and a missing tyro."""

import subprocess
import sys

import pytest

from keras_vit.recipes import configs
from keras_vit.recipes.checkpoints import checkpoints
from keras_vit.version import __version__
from keras_vit_cli.demo.command import Demo
from keras_vit_cli.doctor.command import Doctor
from keras_vit_cli.export.command import Export
from keras_vit_cli.main import TERMINATED, main
from keras_vit_cli.vtab import Vtab


def test_without_tyro_only_the_doctor_works(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.setattr(Doctor, "run", lambda self: 5 if self.json else 7)
    assert main(["doctor"]) == 7 and main(["doctor", "--json"]) == 5
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.startswith(
        "keras-vit requires tyro: pip install tyro. Only `keras-vit doctor` works"
    )


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-vit {__version__}\n"


@pytest.mark.parametrize("typed,meant", [("trains", "train"), ("few_shot", "few-shot"), ("--help", ""), ("xyz", "")])
def test_similar_command_is_suggested(typed, meant, capsys):
    with pytest.raises(SystemExit):
        main([typed])
    errors = capsys.readouterr().err
    assert errors.endswith(f"Perhaps you meant: keras-vit {meant}\n") if meant else "Perhaps" not in errors


def test_hints_are_about_options_of_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["classify", "cat.jpg", "--topk", "3"])
    errors = capsys.readouterr().err
    assert "Number of classes per image" in errors and "benchmark" not in errors
    assert "run keras-vit classify --help" in errors


def test_package_can_be_run():
    found = subprocess.run([sys.executable, "-m", "keras_vit_cli", "--version"], capture_output=True, text=True)
    assert found.stdout == f"keras-vit {__version__}\n"


@pytest.mark.parametrize(
    "command,names",
    [
        ("convert", "WEIGHTS OUTPUT"),
        ("describe", "WEIGHTS"),
        ("evaluate", "WEIGHTS"),
        ("few-shot", "WEIGHTS DATASET"),
        ("probe", "WEIGHTS DATASET"),
        ("inspect", "WEIGHTS"),
        ("export", "WEIGHTS"),
        ("vtab", "WEIGHTS"),
        ("benchmark", "FILES"),
        ("prepare", "SOURCE OUTPUT"),
        ("preflight", "NAME"),
        ("train", "NAME"),
        ("finetune", "FOLDER"),
        ("sweep", "NAME"),
    ],
)
def test_help_names_positional_arguments(command, names, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert not stopped.value.code and f"] {names}" in capsys.readouterr().out.splitlines()[0]


def test_help_of_few_shot_explains_both_splits(capsys):
    with pytest.raises(SystemExit):
        main(["few-shot", "--help"])
    assert capsys.readouterr().out.count("In TensorFlow Datasets' notation") == 2


@pytest.mark.parametrize("path", ["", "nowhere/x.json"])
@pytest.mark.parametrize(
    "command",
    [["evaluate", "x.keras", "--dataset", "digits"], ["benchmark", "x.tflite"], ["preflight", "cifar10-scratch"]],
)
def test_unwritable_json_file_is_reported_first(command, path, tmp_path, capsys):
    assert main([*command, "--json", str(tmp_path / path)]) == 1
    assert "--json requires a file in an existing folder. Received: " in capsys.readouterr().err


def test_folder_as_recipe(tmp_path, capsys):
    (tmp_path / "d.json").mkdir()
    assert main(["train", str(tmp_path / "d.json")]) == 1
    assert "d.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command,hint",
    [
        (["train", "cifar10-scratch"], " The same command with --run.resume resumes from the last checkpoint."),
        (["sweep", "digits-finetune"], " The same command resumes from the last checkpoint."),
        (["vtab", "x.npz"], " The same command resumes from the last checkpoint."),
        (["export", "x.keras"], "\n"),
        (["demo"], "\n"),
    ],
)
def test_interrupt_tells_how_to_resume(command, hint, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(configs, "check_dataset", stop)
    for kind in (Vtab, Export, Demo):
        monkeypatch.setattr(kind, "run", stop)
    assert main(command) == 130
    hint = hint.replace("checkpoint.", "checkpoint, if there is one.").replace(
        "last step.", "last step, if there is one."
    )
    assert capsys.readouterr().err.startswith(f"\nInterrupted.{hint}")


def test_interrupt_names_the_checkpoint(monkeypatch, capsys):
    def stop(_):
        raise KeyboardInterrupt("Saved step 6 in runs/x.")

    monkeypatch.setattr(Vtab, "run", stop)
    assert main(["vtab", "x.npz"]) == 130
    saved = "\nInterrupted. Saved step 6 in runs/x. The same command resumes from the last checkpoint.\n"
    assert capsys.readouterr().err == saved


def test_commands_without_a_recipe_name_no_fields_of_one(monkeypatch, capsys):
    def stop(_):
        raise ConnectionError("Pass data.dataset='folder:/path'.")

    monkeypatch.setattr(Vtab, "run", stop)
    assert main(["vtab", "x.npz"]) == 1 and capsys.readouterr().err == "keras-vit: Pass 'folder:/path'.\n"


def test_sigterm_tells_how_to_resume(monkeypatch, capsys):
    def stop(_):
        raise SystemExit(TERMINATED)

    monkeypatch.setattr(configs, "check_dataset", stop)
    with pytest.raises(SystemExit):
        main(["train", "cifar10-scratch"])
    assert capsys.readouterr().err == "The same command with --run.resume resumes from the last checkpoint.\n"
    assert TERMINATED == checkpoints.TERMINATED


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["convert", "x.npz", "x.bin"], "Expected a name that ends in .npz"),
        (["convert", "x.npz", "TAKEN"], "taken.npz already exists. Remove it or pass --overwrite."),
        (["convert", "x.npz", "y.npz", "--num-classes", "-1"], "--num-classes must be at least 0 (no head)"),
        (["probe", "x.npz", "digits", "--methods"], "--methods is empty. Pass knn, linear or both."),
    ],
)
def test_invalid_options_are_reported_before_loading(arguments, message, tmp_path, capsys):
    (tmp_path / "taken.npz").touch()
    assert main([str(tmp_path / "taken.npz") if word == "TAKEN" else word for word in arguments]) == 1
    assert message in capsys.readouterr().err
