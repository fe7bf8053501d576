import re

import pytest

import keras_vit
from keras_vit.recipes.configs.digits import FINE_TUNE
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel
from keras_vit.recipes.recipe.file import write_recipe
from keras_vit_cli.commands.inspect.model import open_model

pytestmark = pytest.mark.slow


def test_a_file_of_a_masked_autoencoder_specifies_pixels_and_targets(trained_toy, tmp_path):
    preprocessing = keras_vit.Preprocessing(16, mean=(0.4,) * 3, std=(0.3,) * 3)
    vit = trained_toy(num_classes=0, preprocessing=preprocessing)
    MaskedAutoencoderModel(vit, 1, 8, 2, normalize_targets=False).save(tmp_path / "x.keras")
    recipe = open_model(str(tmp_path / "x.keras")).recipe
    assert (recipe.data.mean, recipe.data.std, recipe.normalize_targets) == ((0.4,) * 3, (0.3,) * 3, False)


def test_class_names_of_a_run(run, trained_toy, tmp_path):
    (tmp_path / "run").mkdir()
    write_recipe(FINE_TUNE, tmp_path / "run" / "recipe.json")
    trained_toy(depth=1).save(tmp_path / "run" / "model.keras")
    (tmp_path / "run" / "labels.txt").write_text("ape\nbee\ncat\ndog\nelk\n")
    status, report, _, errors = run(tmp_path / "run", "--max-images", 2)
    assert status == 0, errors
    predictions = [caption for caption in report.captions if caption.startswith("for ")]
    assert len(predictions) == 2 and all(re.match("for (ape|bee|cat|dog|elk), ", caption) for caption in predictions)


@pytest.mark.parametrize(
    "kind,options", [("BiT", {"image_size": 16}), ("AxialResNet", {"image_size": 32, "num_heads": 2})]
)
def test_resnets_are_not_supported(tmp_path, kind, options):
    getattr(keras_vit, kind)(stages=(1,), num_classes=3, **options).save(tmp_path / "x.keras")
    with pytest.raises(ValueError, match=kind):
        open_model(str(tmp_path / "x.keras"))
