"""What a recipe trains: a model, compiled. Call these inside the strategy's scope."""

import keras

from keras_vit.recipes.distillation.model import build_distillation
from keras_vit.recipes.masked_patch.model import MaskedPatchModel, masked_patch_loss
from keras_vit.recipes.recipe import Distillation, MaskedPatch, Supervised
from keras_vit.recipes.training.losses import build_loss, set_head_bias
from keras_vit.recipes.training.metrics import training_metrics
from keras_vit.recipes.training.model import adapt_model, build_model, load_model
from keras_vit.recipes.training.optimizers import build_optimizer


def compile_masked_patch(recipe: MaskedPatch) -> MaskedPatchModel:
    """Its `vit` is what comes out of the training."""
    model = MaskedPatchModel(build_model(recipe.architecture, recipe.data, recipe.run), recipe.target)
    model.compile(
        optimizer=build_optimizer(recipe.optimizer, recipe.total_steps, model),
        loss=masked_patch_loss(recipe.target),
        metrics=[] if recipe.target == "pixels" else [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model


def compile_classifier(recipe: Supervised, classes: int, total_steps: int, start=None):
    """Returns what is fitted, and the classifier that comes out of it: the same, or the student of a distillation.

    Args:
        recipe: What to train.
        classes: Of the data set.
        total_steps: Updates, of the schedule.
        start: A model to start from instead of the recipe's weights.
    """
    student = _classifier(recipe, start, classes)
    set_head_bias(student, recipe.head_bias)
    model = build_distillation(student, recipe) if isinstance(recipe, Distillation) else student
    model.compile(
        optimizer=build_optimizer(recipe.optimizer, total_steps, student),
        loss=build_loss(recipe),
        # Weighted, so that the images that fill up the last batch of an evaluation do not count.
        weighted_metrics=training_metrics(classes),
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model, student


def _classifier(recipe, start, classes):
    fields = (recipe.architecture, recipe.data, recipe.run, classes)
    if start is not None:
        return adapt_model(start, *fields)
    if recipe.weights:
        return load_model(recipe.weights, *fields)
    return build_model(*fields, **({"distillation": True} if isinstance(recipe, Distillation) else {}))
