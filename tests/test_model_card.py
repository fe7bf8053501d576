import re

import pytest
from PIL import Image

import keras_vit
from keras_vit.model_card import model_card


@pytest.mark.parametrize("options", [{"num_classes": 7}, {"num_classes": 0}, {"projection": True}])
def test_code_of_a_card_runs(toy, tmp_path, monkeypatch, capsys, options):
    model = toy(**options)
    Image.new("RGB", (30, 20)).save(tmp_path / "photo.jpg")
    model.save(tmp_path / "birds.keras")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(re.search("```python\n(.*?)```", model_card(model, "birds.keras", ""), re.DOTALL)[1], names)
    values = names.get("features", names.get("embeddings"))
    assert (
        capsys.readouterr().out.count("class ") == 5
        if values is None
        else values.shape[1] == (5 if "projection" in options else 12)
    )


def test_card(toy):
    model = toy(num_classes=7)
    card = model_card(model, "birds.keras", "Trained on birds.", data="Birds", metrics={"top1": 0.91234, "top5": 1.0})
    assert "| top1 | 0.9123 |\n| top5 | 1 |" in card and "| classes | 7 |" in card
    assert f"| weights | {model.count_params():,} |" in card and "## Origin\n\nTrained on birds." in card
    assert "## License\n\nNot specified" in card and "## Training recipe" not in card


def test_metadata_for_the_hugging_face_hub(toy):
    card = model_card(toy(num_classes=0), "m.keras", "Made up.", license="apache-2.0")
    metadata = card.split("---\n")[1]
    assert metadata.splitlines()[:2] == ["library_name: keras", "pipeline_tag: image-feature-extraction"]
    assert "## Metrics\n\nNot specified" in card and "out-of-distribution" in card
    assert 'license: "apache-2.0"' in metadata and "## License\n\napache-2.0" in card


@pytest.mark.parametrize(
    "model,title",
    [
        (lambda: keras_vit.ViT("Ti/16", image_size=32, num_classes=3), "Ti/16, images of 32 x 32 pixels"),
        (lambda: keras_vit.BiT(stages=(1, 1, 1, 1), image_size=32, num_classes=3), "BiT, images of 32 x 32 pixels"),
        (
            lambda: keras_vit.AxialResNet(stages=(1, 1, 1, 1), image_size=64, num_classes=3),
            "AxialResNet, images of 64 x 64 pixels",
        ),
    ],
)
def test_title_and_metadata(model, title):
    card = model_card(model(), "m.keras", "Made up.")
    assert (
        f"\n# {title}\n" in card
        and "pipeline_tag: image-classification" in card
        and "| mean | (0.5, 0.5, 0.5) |" in card
    )
