"""The options that messages suggest in place of those of other programs exist."""

import tyro

from keras_vit.recipes.recipe import Supervised
from keras_vit.recipes.recipe_values import deferred_checks
from keras_vit_cli.option_words import WORDS


def test_fields_of_recipes():
    values = {"name": ["sgd"], "variant": ["S/16"], "resume": [], "folder:/path": [], "block": [], "float16": []}
    for words in WORDS.values():
        arguments = f"--{words}".split()
        value = next((value for end, value in values.items() if arguments[-1].endswith(end)), ["1"])
        with deferred_checks():
            tyro.cli(Supervised, args=[*arguments, *value])
