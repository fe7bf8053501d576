"""What all commands have in common: help, errors in a line, a machine without tyro."""

import sys

import pytest

from keras_vit.cli.demo.command import Demo
from keras_vit.cli.doctor.command import Doctor
from keras_vit.cli.export.command import Export
from keras_vit.cli.main import main
from keras_vit.cli.vtab import Vtab
from keras_vit.recipes import configs


def test_without_tyro_only_the_doctor_works(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.setattr(Doctor, "run", lambda self: 5 if self.json else 7)
    assert main(["doctor"]) == 7 and main(["doctor", "--json"]) == 5
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "keras-vit needs tyro: pip install tyro. keras-vit doctor works without.\n"


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
        ("sweep", "NAME"),
    ],
)
def test_help_names_what_is_wanted(command, names, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert not end.value.code and f"] {names}" in capsys.readouterr().out.splitlines()[0]


def test_both_splits_of_few_shot_are_explained(capsys):
    with pytest.raises(SystemExit):
        main(["few-shot", "--help"])
    assert capsys.readouterr().out.count("In TensorFlow Datasets' notation") == 2


@pytest.mark.parametrize("there", ["", "nowhere/x.json"])
@pytest.mark.parametrize(
    "command",
    [["evaluate", "x.keras", "--dataset", "digits"], ["benchmark", "x.tflite"], ["preflight", "cifar10-scratch"]],
)
def test_a_file_that_cannot_be_written_is_said_first(command, there, tmp_path, capsys):
    assert main([*command, "--json", str(tmp_path / there)]) == 1
    assert "is a folder, or is in none that exists. Name a file" in capsys.readouterr().err


def test_a_folder_is_no_recipe(tmp_path, capsys):
    (tmp_path / "d.json").mkdir()
    assert main(["train", str(tmp_path / "d.json")]) == 1
    assert "d.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command,says",
    [
        (["train", "digits-finetune"], " The same command with --run.resume goes on from the last checkpoint, if "),
        (["sweep", "digits-finetune"], " The same command goes on from the last checkpoint."),
        (["vtab", "x.npz"], " The same command goes on from the last checkpoint."),
        (["export", "x.keras"], "\n"),
        (["demo"], "\n"),
    ],
)
def test_ctrl_c_says_how_to_go_on(command, says, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(configs, "check_dataset", stop)
    for kind in (Vtab, Export, Demo):
        monkeypatch.setattr(kind, "run", stop)
    assert main(command) == 130
    assert capsys.readouterr().err.startswith(f"\nStopped.{says}")


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["convert", "x.npz", "x.bin"], "Expected a name that ends in .npz"),
        (["convert", "x.npz", "TAKEN"], "taken.npz exists already. Remove it, or give --overwrite."),
        (["convert", "x.npz", "y.npz", "--num-classes", "-1"], "--num-classes must be 0, for no head, or more"),
        (["probe", "x.npz", "digits", "--methods"], "--methods is empty. Name knn, linear or both."),
    ],
)
def test_what_cannot_be_done_is_said_before_weights_are_read(arguments, message, tmp_path, capsys):
    (tmp_path / "taken.npz").touch()
    assert main([str(tmp_path / "taken.npz") if word == "TAKEN" else word for word in arguments]) == 1
    assert message in capsys.readouterr().err
