"""Options that all commands that load weights have, and the note of what was assumed."""

import json

import pytest
from goldens import golden_file

import keras_vit
from keras_vit.pixel_range import IMAGENET
from keras_vit_cli.preprocessing_flags import PreprocessingFlags, with_recipe_fields
from keras_vit_cli.process import notes


def test_fields(tmp_path):
    file = tmp_path / "preprocessing.json"
    file.write_text(json.dumps(keras_vit.Preprocessing(9, mean=(0.1,) * 3, origin="assumed").get_config()))
    assert PreprocessingFlags().fields() is None
    assert PreprocessingFlags("imagenet", std=(1, 1, 1)).fields() == {"mean": IMAGENET["mean"], "std": (1, 1, 1)}
    found = keras_vit.Preprocessing.from_argument(PreprocessingFlags(str(file), resize="shortest").fields(), 16)
    assert found == keras_vit.Preprocessing(16, mean=(0.1,) * 3, resize="shortest") and found.origin == "user"


def test_recipes_have_fields_for_it(tmp_path):
    imagenet = "--data.mean 0.485 0.456 0.406 --data.std 0.229 0.224 0.225".split()
    for typed in (["--preprocessing", "imagenet"], ["--preprocessing=imagenet"]):
        words = with_recipe_fields(("--total-steps", "3", *typed, "--weights=a.npz"))
        assert words == (*imagenet, "--total-steps", "3", "--weights=a.npz")
    file = tmp_path / "x.json"
    file.write_text(json.dumps(keras_vit.Preprocessing(9).get_config()))
    words = with_recipe_fields(("--preprocessing", str(file)), "recipe.")
    assert words == tuple("--recipe.data.mean 0.5 0.5 0.5 --recipe.data.std 0.5 0.5 0.5".split())
    assert with_recipe_fields(("--weights=a.npz",)) == ("--weights=a.npz",)
    file.write_text('{"mean": [0, 0, 0]}')
    with pytest.raises(ValueError, match="x.json must have the fields mean and std. Received: mean"):
        with_recipe_fields(("--preprocessing", str(file)))
    file.write_text('{"mean": 0.5, "std": 0.5}')
    with pytest.raises(ValueError, match="`mean` must be three numbers. Received: .0.5,."):
        with_recipe_fields(("--preprocessing", str(file)))


@pytest.mark.parametrize(
    "name,text,message",
    [
        (
            "imagnet",
            None,
            "Expected --preprocessing imagenet, clip, half or a file that ends in .json. Received: imagnet",
        ),
        ("no.json", None, "There is no file .*no.json for --preprocessing"),
        ("x.json", "{", "x.json is not valid JSON"),
        ("x.json", "[]", "x.json must hold a JSON object of fields. Received: a list"),
    ],
)
def test_wrong_files(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    if text:
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        PreprocessingFlags(name).fields()


def test_what_is_assumed_is_one_line(run_cli, tmp_path):
    file = golden_file(tmp_path, "timm_token").rename(tmp_path / "deit_tiny.safetensors")
    note = (
        "Note: deit_tiny.safetensors does not state how its pixels are scaled. Assumed: mean=(0.485, 0.456, 0.406) "
        "and std=(0.229, 0.224, 0.225). If you know others, pass --preprocessing imagenet, clip, half or FILE.json to "
        "the command that uses the model.\n"
    )
    status, output, errors = run_cli("describe", file)
    assert status == 0 and errors == note and "\n  origin              assumed\n" in output
    arguments = "convert", file, tmp_path / "x.keras", "--num-heads", 3
    assert run_cli(*arguments)[2] == note
    assert run_cli(*arguments, "--overwrite", "--preprocessing", "half")[2] == ""
    assert "\n  origin              user\n" in run_cli("describe", tmp_path / "x.keras")[1]


def test_words_are_those_of_the_warning():
    from keras_vit import pixel_range

    assert notes.ARGUMENT == pixel_range.ARGUMENT
