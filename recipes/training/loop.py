"""The training loop: `model.fit` from the last checkpoint to the last step."""

import math
from collections.abc import Callable
from functools import partial

from keras_vit.recipes.checkpoints.checkpoints import open_checkpoints
from keras_vit.recipes.checkpoints.run_identity import begin_run
from keras_vit.recipes.data import ImageDataset
from keras_vit.recipes.data.data_errors import report_data_errors
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.distributed.hosts import shard_batches, shard_evaluation
from keras_vit.recipes.distributed.seeds import offset_replica_seeds
from keras_vit.recipes.distributed.steps_per_execution import set_steps_per_execution
from keras_vit.recipes.distributed.strategy import strategy_of
from keras_vit.recipes.distributed.workers import Workers
from keras_vit.recipes.recipe import Recipe, Run
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.callbacks import training_callbacks
from keras_vit.recipes.training.ema import use_ema_weights
from keras_vit.recipes.training.keras_internals import build_from_spec
from keras_vit.recipes.training.nonfinite import check_finite_weights, warn_of_skipped_steps
from keras_vit.recipes.training.summary import describe_run

History = dict[str, list[float]]


def fit(model, recipe: Recipe, total_steps: int, dataset: ImageDataset, batches: Callable, callbacks=()) -> History:
    """Trains a compiled model, from the last checkpoint if `run.resume` is set; leaves the EMA in its weights, if any.

    An epoch of Keras is `run.epoch_steps` steps. The first epoch after a resume, and the last, may be shorter.

    Args:
        total_steps: Steps of the whole run.
        dataset: As returned by `open_dataset`.
        batches: Function (start_step, host) -> tf.data.Dataset of one host's part of the batches from that step on,
            see `shard_batches`.
        callbacks: Additional Keras callbacks.

    Returns:
        The history of all epochs trained by this call, as `keras.callbacks.History`.

    Raises:
        ValueError: Files of the dataset are damaged, or more than `data.max_corrupt` of the images are corrupt.
        FloatingPointError: Gradients, metrics of a validation, or the weights at the end are not finite.
    """
    start_step = 0
    workers = Workers(strategy_of(model))
    with strategy_of(model).scope():
        # Here, not in the first step: a step that creates variables is traced twice.
        model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, recipe.optimizer.accumulation_steps, strategy_of(model).num_replicas_in_sync)
    identity = begin_run(recipe, dataset, workers) if recipe.run.folder else None
    checkpoints = open_checkpoints(recipe.run, identity)
    if checkpoints:
        start_step = checkpoints.restore(model)
    offset_replica_seeds(model)
    validation = _validation(model, recipe, dataset)
    callbacks = training_callbacks(recipe, model, dataset, total_steps, checkpoints, callbacks)
    if workers.chief:
        print(describe_run(recipe, strategy_of(model), model, dataset, total_steps, start_step))
    try:
        with report_data_errors(dataset), build_from_spec(model, lambda: batches(start_step, ONE_HOST).element_spec):
            history = _fit_parts(model, recipe, total_steps, start_step, batches, validation, callbacks)
    finally:
        if checkpoints:
            checkpoints.release()
    if workers.chief:
        warn_of_skipped_steps(model)
    use_ema_weights(model)
    check_finite_weights(model, "The weights after training" if recipe.optimizer.ema_momentum is None else "The EMA")
    return history


def _validation(model, recipe, dataset):
    """Arguments of `fit` for the validation split, if there is one."""
    if not (recipe.has_labels and recipe.data.validation_split):
        return {}
    batches, steps = shard_evaluation(strategy_of(model), recipe.data, dataset, recipe.data.validation_split)
    return {"validation_data": batches, "validation_steps": steps}


def _fit_parts(model, recipe, total_steps, step, batches, validation, callbacks):
    """Calls `model.fit` until all steps are done; returns the histories of all calls, joined."""
    run, history = recipe.run, {}
    workers = Workers(strategy_of(model))
    while step < total_steps:
        epoch_steps, epochs = _next_part(step, total_steps, run)
        # TensorFlow 2.20 fails with several workers and more than one step per execution. Keras would run past the end
        # of an epoch that is no multiple of them.
        set_steps_per_execution(model, 1 if workers.several else math.gcd(epoch_steps, run.steps_per_execution))
        part = model.fit(
            shard_batches(strategy_of(model), partial(batches, step), recipe.data.batch_size),
            initial_epoch=step // run.epoch_steps,
            epochs=step // run.epoch_steps + epochs,
            steps_per_epoch=epoch_steps,
            **validation,
            shuffle=False,  # the batches are shuffled already, by the seed
            callbacks=callbacks,
            verbose="auto" if workers.chief else 0,
        ).history
        history = {name: history.get(name, []) + values for name, values in part.items()}
        if model.stop_training:  # set by a callback
            break
        step += epoch_steps * epochs
    return history


def _next_part(step: int, total_steps: int, run: Run) -> tuple[int, int]:
    """Steps per epoch and number of epochs of the next call of `model.fit`: all complete epochs, or the rest of one."""
    step_in_epoch = step % run.epoch_steps
    complete = (total_steps - step) // run.epoch_steps
    if not step_in_epoch and complete:
        return run.epoch_steps, complete
    return min(run.epoch_steps - step_in_epoch, total_steps - step), 1
