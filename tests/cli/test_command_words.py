"""Options and orders of words of other programs are answered by what to type."""

import re

import pytest

from keras_vit_cli.command_words import COMMAND_WORDS, check_command_words
from keras_vit_cli.main import _commands, main


@pytest.mark.parametrize(
    "line,message",
    [
        ("probe x digits --k 3", "There is no option --k. Use --neighbors\n"),
        ("classify cat.jpg --k=3", "There is no option --k. Use --top\n"),
        ("finetune photos --epochs 3", "--epochs: keras-vit finetune chooses the settings"),
        (
            "finetune photos --output-dir x --optimizer.lr 3",
            "Use --output\nThere is no option --optimizer.lr: keras-vit",
        ),
        ("train --total-steps 3 cifar10", "precedes all options: keras-vit train cifar10 --total-steps 3\n"),
        ("sweep --recipe.total-steps 3", "precedes all options: keras-vit sweep NAME --recipe.total-steps 3\n"),
        ("train --run.folder runs/x --run.resume", "keras-vit train runs/x --run.folder runs/x --run.resume\n"),
        ("train --run.folder=runs/x", "keras-vit train runs/x --run.folder=runs/x\n"),
        ("vtab gone.npz", "There is no weights file or folder"),
        ("convert gone.npz x.npz", "There is no weights file or folder"),
    ],
)
def test_what_to_type_instead(line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "recipe.json").touch()
    assert main(line.split()) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMAND_WORDS)
def test_the_words_are_options(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    listed = capsys.readouterr().out
    check_command_words(command, re.findall(r"--[a-z][\w-]*", listed))  # none of its own is refused
    for word, use in COMMAND_WORDS[command].items():
        assert f"--{use.split()[0]} " in listed and f"--{word} " not in listed
    assert command in _commands()
