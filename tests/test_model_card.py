import re

import pytest
from PIL import Image

import keras_vit
from keras_vit.model_card import model_card


@pytest.mark.parametrize(
    "options,width", [({"num_classes": 7}, None), ({"num_classes": 0}, 12), ({"projection": True}, 5)]
)
def test_code_of_a_card_runs(toy, tmp_path, monkeypatch, capsys, options, width):
    model, names = toy(depth=1, **options), {}
    Image.new("RGB", (30, 20)).save(tmp_path / "photo.jpg")
    model.save(tmp_path / "birds.keras")
    monkeypatch.chdir(tmp_path)
    exec(re.search("```python\n(.*?)```", model_card(model, "birds.keras", ""), re.DOTALL)[1], names)
    if width is None:
        assert capsys.readouterr().out.count("class ") == 5
    else:
        assert names.get("features", names.get("embeddings")).shape[1] == width


def test_card(toy):
    model = toy(num_classes=7)
    card = model_card(model, "birds.keras", "Trained on birds.", data="Birds", metrics={"top1": 0.91234, "top5": 1.0})
    assert "| top1 | 0.9123 |\n| top5 | 1 |" in card and "| classes | 7 |" in card
    assert f"| weights | {model.count_params():,} |" in card and "Trained on birds." in card
    card = model_card(toy(num_classes=0), "m.keras", "Made up.", license="apache-2.0")
    metadata = card.split("---\n")[1].splitlines()  # for the Hugging Face Hub
    assert metadata[:2] == ["library_name: keras", "pipeline_tag: image-feature-extraction"]
    assert 'license: "apache-2.0"' in metadata
    small = {"stages": (1,), "image_size": 32, "num_classes": 3}
    for model, kind in (
        (keras_vit.ViT("Ti/16", image_size=32, num_classes=3), "Ti/16"),
        (keras_vit.BiT(**small), "BiT"),
        (keras_vit.AxialResNet(**small), "AxialResNet"),
    ):
        card = model_card(model, "m.keras", "Made up.")
        assert f"\n# {kind}, images of 32 x 32 pixels\n" in card and "| mean | (0.5, 0.5, 0.5) |" in card
        assert "pipeline_tag: image-classification" in card
