"""Compiled classifiers of recipes. Call these inside the strategy's scope."""

from keras_vit.recipes.distillation.model import build_distillation
from keras_vit.recipes.recipe import Distillation, Recipe, Supervised
from keras_vit.recipes.training.freezing import train_last_blocks
from keras_vit.recipes.training.losses import build_loss, set_head_bias
from keras_vit.recipes.training.metrics import training_metrics
from keras_vit.recipes.training.model import adapt_model, build_model, load_model
from keras_vit.recipes.training.optimizers import build_optimizer


def compile_classifier(recipe: Supervised, num_classes: int, total_steps: int, start=None, multi_label: bool = False):
    """Returns the compiled model to fit, and the classifier in it: the same model, or the student of a distillation.

    Args:
        num_classes: Number of classes of the dataset.
        total_steps: Steps of the run, for the schedule.
        start: A model to start from instead of the recipe's weights.
        multi_label: Whether images have several labels each.
    """
    student = _classifier(recipe, start, num_classes)
    student.multi_label = multi_label
    if recipe.trainable_blocks is not None:
        train_last_blocks(student, recipe.trainable_blocks)
    if recipe.head_bias:
        set_head_bias(student, recipe.head_bias)
    model = build_distillation(student, recipe) if isinstance(recipe, Distillation) else student
    model.compile(
        **optimizer_arguments(recipe, total_steps, student),
        **_loss_and_metrics(recipe, num_classes, multi_label),
        steps_per_execution=recipe.run.steps_per_execution,
    )
    return model, student


def compile_for_evaluation(classifier, recipe: Supervised, num_classes: int):
    """Compiles a classifier for `evaluate`, without an optimizer."""
    classifier.compile(**_loss_and_metrics(recipe, num_classes, classifier.multi_label))


def optimizer_arguments(recipe: Recipe, total_steps: int, model) -> dict:
    """Arguments of `compile`: the optimizer of a recipe, for the trainable weights of a model."""
    loss_scaling = recipe.run.precision == "mixed_float16"
    optimizer = build_optimizer(recipe.optimizer, total_steps, model, loss_scaling)
    # Keras's scaling would apply an optimizer inside of another, whose step, counters and averages we read.
    return {"optimizer": optimizer, "auto_scale_loss": False}


def _loss_and_metrics(recipe, num_classes, multi_label):
    # Weighted, so that the images that pad the last batch of an evaluation do not count.
    return {"loss": build_loss(recipe), "weighted_metrics": training_metrics(num_classes, multi_label)}


def _classifier(recipe, start, num_classes):
    if start is not None:
        return adapt_model(start, recipe, num_classes)
    if recipe.weights:
        return load_model(recipe.weights, recipe, num_classes)
    has_token = recipe.has_teacher and recipe.distillation_token
    more = {"distillation": True} if has_token else {}
    return build_model(recipe.architecture, recipe.data, recipe.run, num_classes, **more)
