"""The training loop: `model.fit` from the last checkpoint to the last step."""

import math
import os
from functools import partial

import keras
import tensorflow as tf

from keras_vit.progress import keras_verbosity
from keras_vit.recipes.data.image_dataset import report_data_errors
from keras_vit.recipes.data.pipeline import ONE_HOST
from keras_vit.recipes.keras_internals import build_from_spec, seed_states
from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.processes.strategies import shard_batches, shard_evaluation, strategy_of
from keras_vit.recipes.processes.watch import Events
from keras_vit.recipes.recipe import Run
from keras_vit.recipes.runs.agreement import check_same_weights
from keras_vit.recipes.runs.checkpoints import Checkpoints
from keras_vit.recipes.runs.folder import begin_run
from keras_vit.recipes.runs.logs import LOG, CsvLog, ProgressBar, log_callbacks, read_log
from keras_vit.recipes.runs.open_run import OpenRun
from keras_vit.recipes.runs.self_supervised import Pretraining
from keras_vit.recipes.runs.summary import describe_run
from keras_vit.recipes.runs.supervised import ClassifierTraining
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.callbacks import (
    BestWeights,
    EvaluateWithEMA,
    NonfiniteSteps,
    OneTraining,
    SwapEMA,
    check_finite_metrics,
    check_finite_weights,
    use_ema_weights,
    warn_of_skipped_steps,
)

History = dict[str, list[float]]


def fit(run: OpenRun, training: ClassifierTraining | Pretraining, callbacks=()) -> History:
    """Trains a model, from the last checkpoint if `run.resume` is set; leaves the EMA in its weights, if any.

    An epoch of Keras is `run.epoch_steps` steps. The first epoch after a resume, and the last, may be shorter.
    """
    recipe, model, workers = run.recipe, training.model, run.workers
    replaced, start_step = run.replacements.fields(model.optimizer, training.result), 0
    with run.strategy.scope():
        # Here, not in the first step: a step that creates variables is traced twice.
        model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, recipe.optimizer.accumulation_steps, run.strategy.num_replicas_in_sync)
    checkpoints = None
    best = BestWeights(model, recipe.run) if recipe.run.chooses_weights else None
    if run.folder:
        # Only now: the optimizer and the class of the model, which a user may replace, have a name once they exist.
        identity = begin_run(run.folder, run.data, replaced, workers, run.began)
        more = {"best": best.variables} if best else {}
        intervals = recipe.run.checkpoint_steps, recipe.run.keep_checkpoints
        checkpoints = Checkpoints(run.folder, *intervals, identity, more)
        start_step = checkpoints.restore(model)
    check_same_weights(model, workers)
    offset_replica_seeds(model)
    validation = _validation(run)
    own = [*([best] if best else []), *([OneTraining(callbacks, run.data.total_steps)] if callbacks else [])]
    callbacks = training_callbacks(run, model, checkpoints, own)
    if workers.chief:
        print(describe_run(run, model, start_step, replaced))
        if best and recipe.data.validation_split == recipe.data.test_split:
            print("Note: the weights are chosen on the test images, so the accuracy on them is too high.")
    batches = partial(training.batches, start_step)
    try:
        with report_data_errors(run.data.dataset), build_from_spec(model, lambda: batches(ONE_HOST).element_spec):
            if validation and run.folder and start_step:
                _validate_if_interrupted(run, model, best, validation, start_step)
            history = {} if best and best.stops else _fit_parts(run, training, start_step, validation, callbacks)
    finally:
        if checkpoints:
            checkpoints.release()
    if workers.chief:
        warn_of_skipped_steps(model)
    use_ema_weights(model)
    if best:
        best.restore()
        if workers.chief:
            print(best.summary(run.data.total_steps))
    check_finite_weights(model, "The weights after training" if recipe.optimizer.ema_momentum is None else "The EMA")
    training.finish()
    return history


def _validation(run):
    """Arguments of `fit` for the validation split, if there is one."""
    data = run.recipe.data
    if not (run.recipe.has_labels and data.validation_split):
        return {}
    batches, steps = shard_evaluation(run.strategy, data, run.data.dataset, data.validation_split)
    return {"validation_data": batches, "validation_steps": steps}


def _validate_if_interrupted(run, model, best, validation, step):
    """The validation at the step of a checkpoint, if the run ended before its result was in the log and in `best`.

    The log's row says that an epoch ended there: the length of epochs may have changed.
    """
    log = CsvLog(os.path.join(run.folder, LOG))
    lacks = best and int(best.validated.numpy()) < step
    row = next((row for row in read_log(log.file) if int(row["step"]) == step), {})
    is_logged = any(value for name, value in row.items() if name.startswith("val_"))
    if not run.workers.any(bool(row) and (lacks or not is_logged)):  # all of them validate, or none
        return
    batches, steps = validation["validation_data"], validation["validation_steps"]
    metrics = model.evaluate(batches, steps=steps, callbacks=[EvaluateWithEMA()], return_dict=True, verbose=0)
    metrics = {f"val_{name}": value for name, value in metrics.items()}
    check_finite_metrics(metrics, f"the validation after step {step}")
    if run.workers.chief:
        log.complete(step, metrics)
    if lacks:
        end = keras.callbacks.CallbackList([SwapEMA(), best, SwapEMA()], model=model)
        end.on_epoch_end(0, metrics)


def _fit_parts(run: OpenRun, training: ClassifierTraining | Pretraining, step, validation, callbacks):
    """Calls `model.fit` until all steps are done; returns the histories of all calls, joined."""
    model, settings = training.model, run.recipe.run
    history: History = {}
    while step < run.data.total_steps:
        epoch_steps, epochs = _next_part(step, run.data.total_steps, settings)
        # TensorFlow 2.20 fails with several workers and more than one step per execution. Keras would run past the end
        # of an epoch that is no multiple of them.
        execution = 1 if run.workers.several else math.gcd(epoch_steps, settings.steps_per_execution)
        set_steps_per_execution(model, execution)
        part = model.fit(
            shard_batches(run.strategy, partial(training.batches, step), run.recipe.data.batch_size),
            initial_epoch=step // settings.epoch_steps,
            epochs=step // settings.epoch_steps + epochs,
            steps_per_epoch=epoch_steps,
            **validation,
            shuffle=False,  # the batches are shuffled already, by the seed
            callbacks=callbacks,
            verbose=keras_verbosity() if run.workers.chief else 0,
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


def training_callbacks(run: OpenRun, model, checkpoints: Checkpoints | None = None, more=()) -> list:
    """Builds the callbacks of a run."""
    # Weights are swapped back before any other callback sees the end of an evaluation; a run is stopped before its
    # checkpoint is saved; logs are complete before they are written, and written before the checkpoint.
    return [
        Events(),
        EvaluateWithEMA(),
        NonfiniteSteps(run.recipe.run.max_nonfinite_steps, checkpoints),
        *log_callbacks(run, model),
        *([SwapEMA(), *more, SwapEMA()] if more else []),
        *([checkpoints] if checkpoints else []),
        ProgressBar(),
    ]


STRIDE = 1_000_003  # between replicas; the seeds of layers are close to each other


def offset_replica_seeds(model):
    """Seeds dropout and stochastic depth differently on every replica; does nothing with one replica.

    With JAX there is nothing to do: one program draws the masks of the whole batch.

    Keras starts each random generator in the same state on all replicas, so they would draw the same masks. Call it
    once per run, after a checkpoint is restored: checkpoints hold the states of the first replica, which do not change.
    """
    strategy, states = strategy_of(model), seed_states(model)

    def offset():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for state in states:
            state.assign(state + tf.cast([STRIDE * replica, 0], state.dtype))

    if states and strategy.num_replicas_in_sync > 1 and not isinstance(strategy, JaxDevices):
        strategy.run(tf.function(offset))


def set_steps_per_execution(model, steps_per_execution: int):
    """Sets the number of steps per call in `fit`."""
    if model.steps_per_execution != steps_per_execution:
        model.steps_per_execution = steps_per_execution
        # Keras builds them once, for the steps of that time, and would skip batches after a change.
        model.train_function = model.test_function = model.predict_function = None
    on_tpu = isinstance(strategy_of(model), tf.distribute.TPUStrategy)
    if steps_per_execution > 1 and on_tpu and model.train_function is None:
        use_static_step_loop(model)


def use_static_step_loop(model):
    """Replaces the train and test functions of a compiled model: `model.steps_per_execution` steps per call, unchecked.

    Keras's functions check before every step whether data remains. Under `TPUStrategy`, that makes the batch size
    dynamic, so the compiler pads batches, and every batch passes through one device. Training data is endless; an
    evaluation checks on the host. Call it after a change of `steps_per_execution`, before `fit`.
    """
    strategy, steps = model.distribute_strategy, model.steps_per_execution

    @tf.function(autograph=False)
    def training(iterator):
        def step(index):
            strategy.run(model.train_step, args=(next(iterator),))
            return (index + 1,)

        tf.while_loop(lambda index: index < steps, step, (tf.constant(0),))

    @tf.function(autograph=False)
    def evaluation(batch):
        strategy.run(model.test_step, args=(batch,))

    def train(iterator):
        training(iterator)
        return model.get_metrics_result()

    def test(iterator):
        for index in range(steps):
            batch = next(iterator, None)  # not in the graph, where metrics of a missing batch would be added
            if batch is None and index == 0:
                raise StopIteration
            if batch is None:
                break
            evaluation(batch)
        return model.get_metrics_result()

    model.train_function, model.test_function = train, test
