"""Runs a recipe: builds everything inside the strategy's scope, then plain `model.fit`."""

import math
from functools import partial

import keras

from keras_vit import VisionTransformer
from keras_vit.images import patch_grid
from keras_vit.recipes.checkpoints import open_run
from keras_vit.recipes.data import (
    class_names,
    evaluation_batches,
    open_dataset,
    training_batches,
    training_pixels,
)
from keras_vit.recipes.masked_patch import MaskedPatchModel, masked_patch_batches, masked_patch_loss
from keras_vit.recipes.optimizers import build_optimizer
from keras_vit.recipes.recipe import Architecture, Data, FineTune, MaskedPatch, Run
from keras_vit.recipes.strategy import choose_strategy

# Updates between two lines of the progress bar and two points of the curves.
STEPS_PER_EPOCH = 100


def build_vit(architecture: Architecture, data: Data, run: Run, num_classes: int = 0) -> VisionTransformer:
    """The recipe's model with random weights; call it inside the strategy's scope."""
    fields = {name: getattr(architecture, name) for name in architecture.__dataclass_fields__}
    return VisionTransformer(
        **fields, image_size=data.image_size, num_classes=num_classes, seed=run.seed, dtype=run.precision, name="vit"
    )


def pretrain(recipe: MaskedPatch, callbacks=()) -> tuple[MaskedPatchModel, dict[str, list[float]]]:
    """Masked-patch pre-training. Returns the trained model (its `vit` is the result) and the history of `fit`."""
    patch_grid(recipe.data.image_size, recipe.architecture.patch_size)
    builder = open_dataset(recipe.data)
    checkpoints = open_run(recipe)
    keras.utils.set_random_seed(recipe.run.seed)
    strategy = choose_strategy(recipe.run.strategy)
    with strategy.scope():
        model = MaskedPatchModel(build_vit(recipe.architecture, recipe.data, recipe.run), recipe.target)
        model.compile(
            optimizer=build_optimizer(recipe.optimizer, recipe.total_steps),
            loss=masked_patch_loss(recipe.target),
            metrics=[] if recipe.target == "pixels" else [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            steps_per_execution=_steps_per_execution(recipe),
        )
        # Here, not in the first step: a step that creates variables is traced twice.
        model.optimizer.build(model.trainable_variables)

    def batches(start_step):
        pixels = training_pixels(recipe.data, builder, recipe.run.seed, start_step)
        return masked_patch_batches(pixels, recipe.architecture.patch_size, recipe, start_step)

    return model, _fit(model, batches, recipe, checkpoints, callbacks)


def finetune(
    recipe: FineTune, vit: VisionTransformer, callbacks=()
) -> tuple[VisionTransformer, dict[str, list[float]]]:
    """Trains a classifier that starts from `vit`, pre-trained or not: positions resized, a new head of zeros.

    Returns the trained model, compiled for `evaluate`, and the history of `fit`.
    """
    patch_grid(recipe.data.image_size, vit.patch_size)
    builder = open_dataset(recipe.data)
    checkpoints = open_run(recipe)
    keras.utils.set_random_seed(recipe.run.seed)
    strategy = choose_strategy(recipe.run.strategy)
    with strategy.scope():
        model = vit.with_head(len(class_names(builder))).resized(recipe.data.image_size)
        model.compile(
            optimizer=build_optimizer(recipe.optimizer, recipe.total_steps),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            # Weighted, so that the pictures that fill up the last batch of an evaluation do not count.
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            steps_per_execution=_steps_per_execution(recipe),
        )
        model.optimizer.build(model.trainable_variables)
    batches = partial(training_batches, recipe.data, builder, recipe.run.seed)
    validation = evaluation_batches(recipe.data, builder, recipe.data.validation_split)
    return model, _fit(model, batches, recipe, checkpoints, callbacks, validation)


def evaluate(model: VisionTransformer, data: Data, split: str) -> float:
    """Top-1 accuracy in [0, 1] of a model from `finetune`; every picture of the split counts once."""
    batches = evaluation_batches(data, open_dataset(data), split)
    return model.evaluate(batches, return_dict=True, verbose=0)["accuracy"]


def _epochs(total_steps: int) -> int:
    """Number of equal parts of about STEPS_PER_EPOCH updates; `fit` draws a progress bar for each."""
    most = max(1, total_steps // STEPS_PER_EPOCH)
    return next(parts for parts in range(most, 0, -1) if total_steps % parts == 0)


def _steps_per_execution(recipe) -> int:
    """The recipe's, reduced to a divisor of an epoch: Keras would run past the epoch's end otherwise."""
    return math.gcd(recipe.run.steps_per_execution, recipe.total_steps // _epochs(recipe.total_steps))


def _fit(model, batches, recipe, checkpoints, callbacks, validation=None):
    """Trains from the last checkpoint to the end; `batches(step)` are those from a step on."""
    epochs = _epochs(recipe.total_steps)
    steps = recipe.total_steps // epochs
    callbacks, done = list(callbacks), 0
    if checkpoints:
        done = checkpoints.restore(model)
        callbacks.append(checkpoints)
    history = {}
    epoch, within = divmod(done, steps)
    while epoch < epochs:
        # The rest of an epoch that was broken off, then all others.
        last = epoch + 1 if within else epochs
        part = model.fit(
            batches(epoch * steps + within),
            initial_epoch=epoch,
            epochs=last,
            steps_per_epoch=steps - within,
            validation_data=validation,
            shuffle=False,  # the data is shuffled already, by the seed
            callbacks=callbacks,
        ).history
        history = {name: history.get(name, []) + values for name, values in part.items()}
        epoch, within = last, 0
    return history
