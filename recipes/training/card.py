"""The model card of a run."""

import dataclasses

from keras_vit.model_card import model_card
from keras_vit.recipes.recipe import Distillation, MaskedPatch

CARD = "model_card.md"


def run_card(model, recipe, metrics: dict, origin: str | None = None) -> str:
    """`model_card` of model.keras that a recipe made; `metrics` are those of `results.run`, `origin` a sentence."""
    data = recipe.data
    if isinstance(recipe, MaskedPatch):
        of = "Metrics are those of the last epoch of training."
    else:
        of = f"Metrics are of its split `{data.test_split}`; accuracies are in [0, 1]."
    some = f", {data.labels_per_class} images a class" if data.labels_per_class else ""
    text = f"`{data.dataset}`, split `{data.train_split}`{some}. {of}"
    return model_card(model, "model.keras", origin or _origin(recipe), text, dataclasses.asdict(recipe), metrics)


def _origin(recipe):
    if isinstance(recipe, MaskedPatch):
        return "Pre-trained here by predicting corrupted patches, without labels (appendix B.1.2 of the ViT paper)."
    start = f"Fine-tuned here from `{recipe.weights}`." if recipe.weights else "Trained here from random weights."
    return f"{start} Its teacher was `{recipe.teacher}`." if isinstance(recipe, Distillation) else start
