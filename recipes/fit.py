"""Runs a recipe: builds everything inside the strategy's scope, then plain `model.fit`."""

from contextlib import nullcontext
from functools import partial

import keras

from keras_vit.images import patch_grid
from keras_vit.recipes.data import (
    class_names,
    count_examples,
    evaluation_batches,
    open_dataset,
    training_batches,
    training_pixels,
)
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.distributed.hosts import shard_batches
from keras_vit.recipes.distributed.seeds import offset_replica_seeds
from keras_vit.recipes.distributed.steps_per_execution import set_steps_per_execution
from keras_vit.recipes.distributed.strategy import choose_strategy
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.masked_patch.model import MaskedPatchModel, masked_patch_batches
from keras_vit.recipes.recipe import Data, MaskedPatch, Supervised
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.checkpoints import open_checkpoints
from keras_vit.recipes.training.checks import check_data, check_labels, check_recipe, count_images
from keras_vit.recipes.training.compile import compile_classifier, compile_masked_patch
from keras_vit.recipes.training.ema import EvaluateWithEMA, use_ema_weights
from keras_vit.recipes.training.keras_internals import build_from_spec
from keras_vit.recipes.training.logs import logging_callbacks
from keras_vit.recipes.training.losses import build_loss
from keras_vit.recipes.training.metrics import training_metrics
from keras_vit.recipes.training.model import check_image_size
from keras_vit.recipes.training.nonfinite import NonfiniteSteps
from keras_vit.recipes.training.summary import describe_run


def pretrain(recipe: MaskedPatch, callbacks=()) -> tuple[MaskedPatchModel, dict[str, list[float]]]:
    """Masked-patch pre-training. Returns the trained model (its `vit` is the result) and the history of `fit`."""
    check_image_size(recipe.architecture, recipe.data)
    strategy, dataset = _prepared(recipe)
    check_data(recipe, dataset, recipe.total_steps)
    with strategy.scope():
        model = compile_masked_patch(recipe)

    def batches(start_step, host):
        pixels = training_pixels(recipe.data, dataset, recipe.run.seed, start_step, host)
        return masked_patch_batches(pixels, model.vit.patch_size, recipe, start_step, host)

    history = _fit(model, recipe, recipe.total_steps, dataset, batches, callbacks)
    use_ema_weights(model)
    return model, history


def train(recipe: Supervised, start=None, callbacks=()):
    """Trains a classifier, from `start`, a model, or else from the recipe's weights or from scratch.

    Returns the trained model, compiled for `evaluate`, and the history of `fit`.

    Raises:
        ValueError, OSError: Something in the recipe cannot work; said before training.
    """
    if start is not None and hasattr(start, "patch_size"):
        patch_grid(recipe.data.image_size, start.patch_size)
    elif not recipe.weights:
        check_image_size(recipe.architecture, recipe.data)
    loss = build_loss(recipe)
    strategy, dataset = _prepared(recipe)
    total_steps = recipe.total_steps or count_steps(recipe, dataset)
    check_data(recipe, dataset, total_steps)
    with strategy.scope():
        model, student = compile_classifier(recipe, len(class_names(dataset)), total_steps, start)
    batches = partial(training_batches, recipe.data, dataset, recipe.run.seed)
    history = _fit(model, recipe, total_steps, dataset, batches, callbacks)
    use_ema_weights(model)
    if model is not student:
        with strategy.scope():
            student.compile(loss=loss, weighted_metrics=training_metrics(len(class_names(dataset))))
    return student, history


def evaluate(model, data: Data, split: str) -> dict[str, float]:
    """Metrics of a model from `train`, such as its "accuracy" in [0, 1]; every image of the split counts once.

    Raises:
        ValueError: The split is missing or has no labels.
    """
    dataset = open_dataset(data)
    check_labels(dataset, split)
    batches, steps = _evaluation(model, data, dataset, split)
    return model.evaluate(batches, steps=steps, return_dict=True, verbose=0)


def count_steps(recipe: Supervised, dataset) -> int:
    """Updates of a recipe that says `total_epochs`."""
    images = count_images(recipe, dataset)[recipe.data.train_split]
    return round(recipe.total_epochs * images / recipe.data.batch_size)


def _prepared(recipe):
    """The strategy and the data, after everything that can be checked without them."""
    strategy = choose_strategy(recipe.run.strategy)  # before any operation, as several workers need it
    check_recipe(recipe, strategy)
    dataset = open_dataset(recipe.data)
    keras.utils.set_random_seed(recipe.run.seed)
    return strategy, dataset


def _fit(model, recipe, total_steps, dataset, batches, callbacks):
    """Trains a compiled model from the last checkpoint, if any, to the end.

    `batches(step, host)` are those from a step on, of one host (see `shard_batches`).

    An epoch of Keras is `run.epoch_steps` updates; the first, of a resumed run, and the last may be shorter.

    Returns the history of all epochs run here.
    """
    run, validation, done = recipe.run, {}, 0
    workers = Workers(model.distribute_strategy)
    with model.distribute_strategy.scope():
        # Here, not in the first step: a step that creates variables is traced twice.
        model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, recipe.optimizer.accumulation_steps)
    checkpoints = open_checkpoints(run)
    if checkpoints:
        done = checkpoints.restore(model)
    offset_replica_seeds(model)
    if not isinstance(recipe, MaskedPatch) and recipe.data.validation_split:
        found, steps = _evaluation(model, recipe.data, dataset, recipe.data.validation_split)
        validation = {"validation_data": found, "validation_steps": steps}
    callbacks = [
        EvaluateWithEMA(),
        NonfiniteSteps(run.max_nonfinite_steps, checkpoints),
        *logging_callbacks(recipe, model, dataset, total_steps, workers.chief),
        *callbacks,
        *([checkpoints] if checkpoints else []),
    ]
    if workers.chief:
        print(describe_run(recipe, model.distribute_strategy, model, dataset, total_steps, done))
    shapes = (
        build_from_spec(model, batches(done, ONE_HOST).element_spec) if model._distribute_strategy else nullcontext()
    )
    try:
        with shapes:
            return _fit_parts(model, recipe, total_steps, done, batches, validation, callbacks, workers)
    finally:
        if checkpoints:
            checkpoints.release()


def _fit_parts(model, recipe, total_steps, done, batches, validation, callbacks, workers):
    """Calls Keras's `fit` until all steps are done; returns the history of all calls together."""
    run, history = recipe.run, {}
    while done < total_steps:
        steps, epochs = _next_part(done, total_steps, run)
        end = done + steps * epochs
        # With several workers TensorFlow 2.20 fails on more than one.
        set_steps_per_execution(model, steps, 1 if workers.several else run.steps_per_execution)
        part = model.fit(
            _shared(model, recipe.data, partial(batches, done)),
            initial_epoch=done // run.epoch_steps,
            epochs=done // run.epoch_steps + epochs,
            steps_per_epoch=steps,
            **({} if end % run.epoch_steps and end < total_steps else validation),
            shuffle=False,  # the data is shuffled already, by the seed
            callbacks=callbacks,
            verbose="auto" if workers.chief else 0,
        ).history
        history = {name: history.get(name, []) + values for name, values in part.items()}
        if model.stop_training:  # a callback's wish
            break
        done = end
    return history


def _shared(model, data, batches):
    return shard_batches(model.distribute_strategy, lambda host: batches(host=host), data.batch_size)


def _evaluation(model, data, dataset, split):
    """Batches of a split and their number, which batches that machines or replicas share do not tell."""
    batches = _shared(model, data, partial(evaluation_batches, data, dataset, split))
    return batches, -(-count_examples(dataset, split) // data.batch_size)


def _next_part(done, total_steps, run) -> tuple[int, int]:
    """Steps an epoch and epochs of the next call of Keras's `fit`: all whole epochs, or a part of one.

    A part that is no multiple of the steps per execution is cut in two: Keras would run past its end otherwise.
    """
    within = done % run.epoch_steps
    whole = (total_steps - done) // run.epoch_steps
    if not within and whole and run.epoch_steps % run.steps_per_execution == 0:
        return run.epoch_steps, whole
    steps = min(run.epoch_steps - within, total_steps - done)
    return steps - steps % run.steps_per_execution or steps, 1
