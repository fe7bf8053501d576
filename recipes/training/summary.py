"""What a run will be, said at its start."""

import math
from collections import Counter

import tensorflow as tf

from keras_vit.recipes.data import class_names
from keras_vit.recipes.recipe import Distillation, MaskedPatch
from keras_vit.recipes.training.checks import count_images


def describe_run(recipe, strategy, model, dataset, total_steps: int, start_step: int = 0) -> str:
    """What is about to run, a line a topic.

    Args:
        model: The one to train, built.
        dataset: As `open_dataset` gives it.
        total_steps: Updates of the whole run.
        start_step: Those that a former process did.
    """
    lines = {
        "devices": _devices(strategy),
        "batch": _batch(recipe, strategy.num_replicas_in_sync),
        "length": _length(recipe, count_images(recipe, dataset)[recipe.data.train_split], total_steps),
        "model": _model(model),
        "data": _data(recipe, dataset),
        "precision": recipe.run.precision,
        "optimizer": _optimizer(recipe.optimizer),
    }
    if isinstance(recipe, Distillation):
        lines["teacher"] = f"{recipe.teacher}, {recipe.distillation}, {recipe.distillation_alpha:g} of the loss"
    lines["folder"] = recipe.run.folder or "none: nothing is kept"
    if start_step:
        lines["folder"] += f"; goes on after update {start_step:,}"
    return "\n".join(f"{topic:<10} {line}" for topic, line in lines.items())


def _devices(strategy):
    replicas = strategy.num_replicas_in_sync
    name = type(strategy).__name__
    if name.startswith("_Default"):  # whose devices TensorFlow does not tell
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return f"1 {kind}{_gpu_names(kind)}, no strategy"
    devices = Counter(device.rpartition("/device:")[2].partition(":")[0] for device in strategy.extended.worker_devices)
    here = ", ".join(f"{count} {kind}{_gpu_names(kind)}" for kind, count in devices.items())
    workers = replicas // max(1, sum(devices.values()))
    return f"{f'{workers} workers of ' if workers > 1 else ''}{here}, {name}, {replicas} replicas"


def _gpu_names(kind):
    if kind != "GPU":
        return ""
    gpus = tf.config.list_physical_devices("GPU")
    names = {tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus}
    return f" ({', '.join(sorted(filter(None, names)))})"


def _batch(recipe, replicas):
    batch, parts = recipe.data.batch_size, recipe.optimizer.accumulation_steps
    line = f"{batch:,} images an update, {batch // replicas:,} a replica"
    return line + (f" in {parts} parts of {batch // replicas // parts:,}" if parts > 1 else "")


def _length(recipe, count, total_steps):
    passes = total_steps * recipe.data.batch_size / count
    epochs = -(-total_steps // recipe.run.epoch_steps)
    return (
        f"{total_steps:,} updates, {passes:.4g} passes over the training images; {epochs:,} epochs of up to "
        f"{recipe.run.epoch_steps:,} updates"
    )


def _model(model):
    total, trainable = (
        sum(math.prod(weight.shape) for weight in group) for group in (model.weights, model.trainable_weights)
    )
    return f"{model.name}, {total:,} parameters, {'all' if trainable == total else f'{trainable:,}'} trainable"


def _data(recipe, dataset):
    counts = ", ".join(f"{count:,} in {split}" for split, count in count_images(recipe, dataset).items())
    classes = "" if isinstance(recipe, MaskedPatch) else f"; {len(class_names(dataset)):,} classes"
    return f"{recipe.data.dataset}: {counts}{classes}; {recipe.data.image_size} x {recipe.data.image_size} pixels"


def _optimizer(optimizer):
    line = f"{optimizer.name}, rate {optimizer.learning_rate:g}"
    if optimizer.warmup_steps:
        line += f" after a warm-up of {optimizer.warmup_steps:,} updates"
    line += f", {optimizer.decay}"
    more = {
        "weight decay": optimizer.weight_decay or None,
        "clipped at": optimizer.global_clipnorm,
        "averages": optimizer.ema_momentum,
        "layer decay": optimizer.layer_decay,
    }
    return line + "".join(f", {name} {value:g}" for name, value in more.items() if value is not None)
