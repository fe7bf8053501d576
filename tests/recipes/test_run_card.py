import json
import re
from dataclasses import replace

from keras_vit.recipes.configs import digits
from keras_vit.recipes.recipe import Distillation, MaskedAutoencoder
from keras_vit.recipes.run_recipe import run_card


def test_card_of_a_run(toy):
    tuning = replace(digits.FINE_TUNE, weights="B_16.npz")
    card = run_card(toy(num_classes=10), tuning, {"top1": 0.5})
    recipe = json.loads(re.search("```json\n(.*?)```", card, re.DOTALL)[1])
    assert recipe["architecture"] == {"dropout": 0.0, "stochastic_depth": 0.0, "patch_dropout": 0.0}  # of B_16.npz
    assert recipe["data"]["dataset"] == "digits" and recipe["total_steps"] == tuning.total_steps
    assert "`digits`, split `train`. Metrics are of its split `test`" in card and "from `B_16.npz`" in card
    history = {"top1": 0.25, "learning_rate": 0.0, "images_per_second": 70.0, "nonfinite_steps": 0.0, "overflows": 2.0}
    masked = run_card(toy(), digits.MASKED_PATCH, {"loss": 2.0, **history})
    assert "|---|---|\n| loss | 2 |\n| color top-1 | 0.25 |\n| overflows | 2 |\n\n" in masked
    assert "`color top-1` is the accuracy of the predicted colors" in masked
    assert '"variant": "Ti/2"' in masked and "predicting corrupted patches" in masked and "of the last epoch" in masked
    encoder = run_card(toy(), MaskedAutoencoder(), {"loss": 0.5})
    assert "as the encoder of a masked autoencoder" in encoder and "of the last epoch" in encoder
    taught = run_card(toy(num_classes=10), Distillation(teacher="big.keras"), {"top1": 0.5})
    assert "\nTrained here from random weights. Its teacher was `big.keras`." in taught
