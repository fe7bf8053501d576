"""Options that all commands that load weights have, and the note of what was assumed."""

import json
import warnings

import keras
import numpy as np
import pytest
from goldens import golden_file
from scenes import scene

import keras_vit
from keras_vit.images import pixel_range
from keras_vit.images.pixel_range import IMAGENET
from keras_vit.models.load import ImageSizeWarning
from keras_vit_cli import process
from keras_vit_cli.main import main
from keras_vit_cli.preprocessing_flags import PreprocessingFlags, with_recipe_fields


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
    for text, word in (('{"mean": [0, 0, 0]}', "std"), ('{"mean": [0, 0.1], "std": [1, 1]}', "3 channels")):
        file.write_text(text)
        with pytest.raises(ValueError, match=word):
            with_recipe_fields(("--preprocessing", str(file)))


def test_what_is_assumed_is_one_note(run_cli, tmp_path):
    file = golden_file(tmp_path, "timm_token").rename(tmp_path / "deit_tiny.safetensors")
    status, output, note = run_cli("describe", file)
    assert status == 0 and "\n  origin              assumed\n" in output
    assert note.startswith("Note: deit_tiny.safetensors ") and note.count("\n") == 1
    assert "mean=(0.485, 0.456, 0.406)" in note and "std=(0.229, 0.224, 0.225)" in note and "--preprocessing" in note
    arguments = "convert", file, "--output", tmp_path / "x.keras", "--num-heads", 3
    assert run_cli(*arguments)[2] == note
    assert run_cli(*arguments, "--overwrite", "--preprocessing", "half")[2] == ""
    assert "\n  origin              user\n" in run_cli("describe", tmp_path / "x.keras")[1]


def test_notes_appear_once_and_name_options(capsys):
    message = "x.npz does not state the size of its images. If you know another, pass image_size=..."
    with process.printing_assumptions():
        for _ in range(2):
            warnings.warn(message, ImageSizeWarning, stacklevel=1)
    errors = capsys.readouterr().err
    assert errors.endswith("pass --image-size\n") and errors.count("Note: ") == 1
    assert process.ARGUMENT == pixel_range.ARGUMENT


@pytest.mark.slow
def test_image_size_resamples_positions(trained_toy, tmp_path, run_cli):
    model, image = trained_toy(num_classes=3, class_names=["a", "b", "c"]), tmp_path / "cat.png"
    scene(0, (40, 30)).save(image)
    model.save(tmp_path / "x.keras")
    larger = model.resized(32)
    probabilities = np.asarray(keras.ops.softmax(larger(larger.preprocess(image))))[0]
    command = ["classify", image, "--model", tmp_path / "x.keras", "--image-size", 32, "--json"]
    (found,) = json.loads(run_cli(*command)[1]).values()
    found = {row["class"]: row["probability"] for row in found}
    np.testing.assert_allclose([found[name] for name in "abc"], probabilities, atol=1e-5)
    assert run_cli("convert", tmp_path / "x.keras", "--output", tmp_path / "y.keras", "--image-size", 32)[0] == 0
    converted = keras_vit.load(tmp_path / "y.keras")
    assert converted.image_size == (32, 32)
    for one, other in zip(converted.get_weights(), larger.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "image_size=32" in (tmp_path / "y.keras.model_card.md").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "evaluate m.npz --dataset folder:photos",
        "probe m.npz --dataset folder:photos",
        "few-shot m.npz --dataset folder:photos",
        "export m.npz --output new",
        "inspect m.npz --images photos --output x.html",
    ],
)
def test_image_size_of_the_commands(line, workplace, monkeypatch):
    def load(weights, **options):
        raise RuntimeError(options["image_size"])

    monkeypatch.setattr("keras_vit.load", load)
    with pytest.raises(RuntimeError, match="48"):
        main([*line.split(), "--image-size", "48", "--debug"])
