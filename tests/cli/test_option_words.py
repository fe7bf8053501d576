"""The options that messages suggest in place of those of other programs exist."""

import re

import pytest
import tyro

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe_values import deferred_checks
from keras_vit_cli.command_words import COMMAND_WORDS, check_command_words
from keras_vit_cli.main import main
from keras_vit_cli.option_words import WORDS


@pytest.mark.parametrize("command", COMMAND_WORDS)
def test_options_of_commands(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    listed = capsys.readouterr().out
    check_command_words(command, re.findall(r"--[a-z][\w-]*", listed))  # accepts all of its own
    for word, use in COMMAND_WORDS[command].items():
        assert f"--{use.split()[0]} " in listed and f"--{word} " not in listed


def test_fields_of_recipes():
    values = {"name": ["sgd"], "variant": ["S/16"], "resume": [], "folder:/path": [], "block": [], "float16": []}
    for words in WORDS.values():
        arguments = f"--{words}".split()
        value = next((value for end, value in values.items() if arguments[-1].endswith(end)), ["1"])
        with deferred_checks():
            tyro.cli(Supervised, args=[*arguments, *value])
