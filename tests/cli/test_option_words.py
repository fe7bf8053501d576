"""Options of other training programs are answered by the words to use."""

import pytest
import tyro

from keras_vit.recipes.recipe import MaskedPatch, Supervised
from keras_vit_cli.main import main
from keras_vit_cli.option_words import WORDS, check_option_words


@pytest.mark.parametrize(
    "command,option,use",
    [
        ("train", "--optimizer.lr", "--optimizer.learning-rate"),
        ("train", "--batch_size=4", "--data.batch-size"),
        ("train", "--data.image-size 224 --epochs", "--total-epochs"),
        ("sweep", "--lr", "--recipe.optimizer.learning-rate"),
        ("sweep", "--recipe.run.seed 1 --recipe.optimizer.lr", "--recipe.optimizer.learning-rate"),
    ],
)
def test_options_of_others(command, option, use, capsys):
    assert main([command, "finetune-pets", *option.split(), "0.1"]) == 1
    name = option.split()[-1].partition("=")[0].replace("_", "-")
    assert f"There is no option {name}. Use {use}\n" in capsys.readouterr().err


def test_several_are_reported_together_and_own_ones_pass():
    check_option_words(["--run.seed", "1", "--optimizer.weight_decay=0.1", "lr", "--unknown"], Supervised())
    with pytest.raises(
        ValueError, match="--wd. Use --optimizer.weight-decay\nThere is no option --seed. Use --run.seed"
    ):
        check_option_words(["--wd", "0.1", "--seed", "1"], Supervised())


def test_recipes_without_labels_have_no_epochs():
    check_option_words(["--total-epochs", "None"], Supervised())
    with pytest.raises(ValueError, match="no option --epochs. Use --total-steps, images"):
        check_option_words(["--epochs", "3"], MaskedPatch())


def test_the_words_are_options():
    values = {"name": ["sgd"], "variant": ["S/16"], "resume": [], "folder:/path": [], "block": [], "float16": []}
    for words in WORDS.values():
        arguments = f"--{words}".split()
        value = next((given for end, given in values.items() if arguments[-1].endswith(end)), ["1"])
        tyro.cli(Supervised, args=[*arguments, *value])
