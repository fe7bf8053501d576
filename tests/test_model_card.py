import json
import re
from dataclasses import replace

import numpy as np
import pytest

import keras_vit
from keras_vit.model_card import model_card
from keras_vit.recipes.configs import digits
from keras_vit.recipes.recipe import Distillation
from keras_vit.recipes.run_recipe import run_card


def test_its_code_runs(toy, tmp_path, monkeypatch):
    model = toy(num_classes=7)
    model.save(tmp_path / "birds.keras")
    card = model_card(
        model, "birds.keras", "Trained on birds.", data="Birds", metrics={"top1": 0.91234, "top5": 1.0}
    )
    monkeypatch.chdir(tmp_path)
    names = {"images": np.zeros((2, 20, 30, 3), "uint8")}
    exec(re.search("```python\n(.*?)```", card, re.DOTALL)[1], names)
    assert names["outputs"].shape == (2, 7)
    assert "| top1 | 0.9123 |\n| top5 | 1 |" in card and "| classes | 7 |" in card
    assert f"| weights | {model.count_params():,} |" in card and "## Origin\n\nTrained on birds." in card
    assert "## License\n\nOf the weights: not told" in card and "## Training" not in card


def test_its_head_is_what_the_hub_reads(toy):
    card = model_card(toy(num_classes=0), "m.keras", "Made up.", license="apache-2.0")
    head = card.split("---\n")[1]
    assert head.splitlines()[:2] == ["library_name: keras", "pipeline_tag: image-feature-extraction"]
    assert "figures are those under Metrics" in card
    assert 'license: "apache-2.0"' in head and "## License\n\napache-2.0" in card


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
def test_every_kind_of_model(model, title):
    card = model_card(model(), "m.keras", "Made up.")
    assert (
        f"\n# {title}\n" in card
        and "pipeline_tag: image-classification" in card
        and "| mean | (0.5, 0.5, 0.5) |" in card
    )


def test_a_run_says_its_recipe_data_and_start(toy):
    tuning = replace(digits.FINE_TUNE, weights="B_16.npz")
    card = run_card(toy(num_classes=10), tuning, {"top1": 0.5})
    recipe = json.loads(re.search("```json\n(.*?)```", card, re.DOTALL)[1])
    assert recipe["data"]["dataset"] == "digits" and recipe["total_steps"] == tuning.total_steps
    assert "`digits`, split `train`. Metrics are of its split `test`" in card and "from `B_16.npz`" in card
    masked = run_card(toy(), digits.MASKED_PATCH, {"loss": 2.0})
    assert "predicting corrupted patches" in masked and "of the last epoch" in masked
    taught = run_card(toy(num_classes=10), Distillation(teacher="big.keras"), {"top1": 0.5})
    assert "from random weights. Its teacher was `big.keras`." in taught
