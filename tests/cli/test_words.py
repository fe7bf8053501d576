"""The words of all commands, and their help pages, which are compared with the parser that tyro makes."""

import re
import shlex
from collections import defaultdict

import pytest
import tyro

from keras_vit.recipes.configs import RECIPES
from keras_vit_cli.commands.preflight import PreflightNpu
from keras_vit_cli.commands.train import Sweep, Train
from keras_vit_cli.main import EXAMPLES, _parse, command_groups, main
from keras_vit_cli.parser import options
from keras_vit_cli.recipe_options import parse_fields
from keras_vit_cli.words import GROUPS

COMMANDS = {name: kind for group in command_groups().values() for name, kind in group.items()}
KINDS = {**COMMANDS, "preflight --npu": PreflightNpu}
# The first word, or, of a command on something else, an option of that name.
SUBJECTS = ("model", "images")
TABLE = {word for words in GROUPS.values() for word in words}
# Of these words the default is the command's own.
OWN_DEFAULTS = ("output", "name", "dataset")


def words_of(kind):
    """The options by their word in Python, with the part of the text before the default."""
    found = {option.name.removeprefix("--").replace("-", "_").lower(): option for option in options(kind)}
    return found, {name: option.text.partition(" Default: ")[0] for name, option in found.items()}


def test_a_word_has_one_form_one_meaning_and_one_default():
    forms, meanings, defaults = (defaultdict(lambda: defaultdict(list)) for _ in range(3))
    for command, kind in KINDS.items():
        found, texts = words_of(kind)
        for name, option in found.items():
            forms[name][option.values if name in SUBJECTS else option.usage].append(command)
            meanings[name][texts[name]].append(command)
            defaults[name][option.text.removeprefix(texts[name]), option.is_required].append(command)
    assert set(meanings) >= TABLE
    for name in (*TABLE, "images", "name"):
        assert len(forms[name]) == 1, dict(forms[name])
        assert len(meanings[name]) == 1, dict(meanings[name])
        assert len(defaults[name]) == 1 or name in (*OWN_DEFAULTS, *SUBJECTS), dict(defaults[name])


@pytest.mark.parametrize("command", KINDS)
def test_help_has_the_options_of_the_parser(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), "--help"])
    page = capsys.readouterr().out
    assert not stopped.value.code and max(map(len, page.partition("Examples")[0].splitlines())) <= 80
    assert "None" not in page and "{" not in page and "STR" not in page.replace("STRIPES", "")
    assert page.rstrip().endswith(EXAMPLES[command][-1]) and page.startswith(f"usage: keras-vit {command.split()[0]}")
    with pytest.raises(SystemExit):
        tyro.cli(KINDS[command], args=["--help"])
    drawn = re.sub("\x1b.*?m", "", capsys.readouterr().out)  # without colors
    flags = set(re.findall(r"^(?:. |usage: .*\[)(--[a-z][a-z0-9-]+)", drawn, re.MULTILINE))
    shown = {option.name for option in options(KINDS[command]) if option.name.startswith("--")}
    assert shown == flags and all(f"  {flag}" in page for flag in flags)


def test_commands_have_a_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], ["--help"]):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)
        assert max(map(len, lines)) <= 80


def test_options_of_a_recipe_are_searched(capsys):
    with pytest.raises(SystemExit):
        main(["train", "cifar10-10ep", "--help", "MixUp"])
    found = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert found == ["--loss", *(f"--data.augment.{name}" for name in ("mixup-alpha", "mix-probability"))]
    with pytest.raises(SystemExit):
        main(["train", "cifar10-10ep", "--help", "nowhere"])
    assert capsys.readouterr().out == "No option of keras-vit train cifar10-10ep has nowhere in its name or text.\n"


def test_help_of_a_recipe_has_its_defaults(capsys):
    with pytest.raises(SystemExit):
        main(["train", "cifar10-10ep", "--help"])
    page = " ".join(capsys.readouterr().out.split())
    assert "{None}" not in page and "default: None" not in page
    batch_size = RECIPES["cifar10-10ep"].data.batch_size
    assert f"--data.batch-size N Global batch size: images per step, over all replicas. Default: {batch_size}." in page
    assert (
        "--data.image-size N [N] Height and width of the model's input image in pixels; one number for a square."
        in page
    )
    assert "--data.no-flip Flip half of the training images horizontally. Default: on." in page


@pytest.mark.parametrize("command,line", [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_examples_are_parsed(command, line):
    program, *words = shlex.split(line.partition(" >")[0], comments=True)
    assert program == "keras-vit" and words[0] == command.split()[0]
    if "--help" in words or (words[0] in ("train", "sweep") and len(words) > 1):
        if "--help" not in words:
            kind = {"train": Train, "sweep": Sweep}[words[0]]
            parsed = _parse(words)
            assert isinstance(parsed, kind) and parsed.name == words[1] and parsed.changes == tuple(words[2:])
        if words[0] == "train":
            changes = [] if "--help" in words else words[2:]
            assert type(parse_fields(RECIPES[words[1]], line, changes)) is type(RECIPES[words[1]])
        return
    assert isinstance(_parse(words), KINDS[command])


def test_a_second_word_is_what_most_mean_by_it():
    assert _parse(["probe", "m.npz", "digits"]).dataset == _parse(["few-shot", "m.npz", "digits"]).dataset == "digits"
    assert str(_parse(["convert", "m.npz", "m.keras"]).output) == _parse(["prepare", "photos", "m.keras"]).output
