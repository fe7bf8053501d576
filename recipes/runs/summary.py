"""The summary of a run that is printed at its start."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from keras_vit.recipes.keras_internals import is_default_strategy
from keras_vit.recipes.processes.jax_devices import JaxDevices
from keras_vit.recipes.runs.open_run import OpenRun

CPU_INFO = Path("/proc/cpuinfo")


def describe_run(run: OpenRun, model, start_step: int = 0, replaced: Mapping = {}) -> str:
    """A run's devices, batch size, length, model, data and optimizer, one line each.

    Args:
        replaced: See `Replacements.fields`.
    """
    recipe, strategy, total_steps = run.recipe, run.strategy, run.data.total_steps
    replicas, precision = strategy.num_replicas_in_sync, recipe.run.precision
    lines = {
        "devices": _devices(strategy),
        "batch": _batch(recipe, replicas),
        "length": _length(recipe, run.data.training_images, total_steps),
        "model": _model(model),
        "data": _data(run.data),
        "precision": precision + _slow_bfloat16(precision, strategy),
        "optimizer": _optimizer(recipe.optimizer, replaced) + _split(recipe.run, replicas),
    }
    if own := [f"{field} {name}" for field, name in replaced.items() if "." not in field and field != "optimizer"]:
        lines["replaced"] = ", ".join(own)
    if recipe.has_teacher:
        lines["teacher"] = _teacher(recipe)
    lines["folder"] = recipe.run.folder or "none, outputs are not saved"
    if start_step >= total_steps:
        lines["folder"] += f", already finished: all {total_steps:,} steps are trained, so none are trained now"
    elif start_step:
        lines["folder"] += f", resuming from step {start_step:,}"
    elif recipe.run.resume:
        lines["folder"] += ", from step 0: there is no checkpoint to resume from"
    return "\n".join(f"{topic:<10} {line}" for topic, line in lines.items())


def _devices(strategy):
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, JaxDevices):
        kind = strategy.names[0].partition(":")[0].upper()
        processes = f" of {strategy.processes} processes" if strategy.processes > 1 else ""
        return f"{replicas} {kind}{processes}, JAX"
    if is_default_strategy(strategy):
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return f"1 {kind}{_gpu_names(kind)}, no strategy"
    devices = Counter(device.rpartition("/device:")[2].partition(":")[0] for device in strategy.extended.worker_devices)
    local = ", ".join(f"{count} {kind}{_gpu_names(kind)}" for kind, count in devices.items())
    workers = replicas // max(1, sum(devices.values()))
    return f"{f'{workers} workers of ' if workers > 1 else ''}{local}, {type(strategy).__name__}, {replicas} replicas"


def _slow_bfloat16(precision, strategy):
    """A remark if the CPU that trains has no products of bfloat16, which are then emulated."""
    on_cpu = is_default_strategy(strategy) and not tf.config.list_logical_devices("GPU")
    if precision != "mixed_bfloat16" or not on_cpu or not CPU_INFO.is_file():
        return ""
    has_bfloat16 = {"avx512_bf16", "amx_bf16", "bf16"} & set(CPU_INFO.read_text().split())  # the last on Arm
    return "" if has_bfloat16 else "; this CPU has no bfloat16 products, and float32 is faster"


def _gpu_names(kind):
    if kind != "GPU":
        return ""
    gpus = tf.config.list_physical_devices("GPU")
    names = {tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus}
    return f" ({', '.join(sorted(filter(None, names)))})"


def _batch(recipe, replicas):
    batch, parts = recipe.data.batch_size, recipe.optimizer.accumulation_steps
    line = f"{batch:,} images, {batch // replicas:,} per replica"
    return line + (f" in {parts} accumulation steps of {batch // replicas // parts:,}" if parts > 1 else "")


def _length(recipe, num_images, total_steps):
    epochs = total_steps * recipe.data.batch_size / num_images
    validates = recipe.has_labels and recipe.data.validation_split
    every = f"{'validation' if validates else 'logs'} every {recipe.run.epoch_steps:,} steps"
    return f"{total_steps:,} steps, {epochs:.4g} epochs; {every}"


def _model(model):
    total, trainable = (
        sum(math.prod(weight.shape) for weight in group) for group in (model.weights, model.trainable_weights)
    )
    config = getattr(getattr(model, "vit", model), "config", None)
    sizes = ""
    if hasattr(config, "depth"):  # no BiT
        grid, patch = (f"{rows} x {columns}" for rows, columns in (config.grid, config.patch_size))
        sizes = f" of depth {config.depth} and width {config.width}, {grid} patches of {patch} pixels"
    return f"{model.name}{sizes}, {total:,} parameters, {'all' if trainable == total else f'{trainable:,}'} trainable"


def _data(data):
    recipe, dataset = data.recipe, data.dataset
    counts = ", ".join(f"{count:,} in {split}" for split, count in data.images.items())
    classes = f"; {len(dataset.class_names):,} classes" if recipe.has_labels else ""
    pixels = "{} x {} pixels".format(*recipe.data.input_size)
    unused = [split for split in dataset.splits if split not in recipe.data.train_split]
    hint = ""
    if unused and not recipe.has_labels and recipe.data.dataset.startswith("folder:"):
        every = "+".join(dataset.splits)
        hint = f"; {', '.join(unused)} not used, --data.train-split {every} trains on all"
    return f"{recipe.data.dataset}: {counts}{classes}; {pixels}{hint}"


def _teacher(recipe):
    return f"{recipe.teacher}, {recipe.distillation}, {recipe.distillation_alpha:g} of the loss"


def _split(run, replicas):
    return f", state split among {replicas} devices" if run.shard_optimizer and replicas > 1 else ""


def _optimizer(optimizer, replaced):
    line = f"{replaced.get('optimizer', optimizer.name)}, learning rate {optimizer.learning_rate:g}"
    if optimizer.warmup_steps:
        line += f" after {optimizer.warmup_steps:,} warmup steps"
    line += f", {optimizer.decay}"
    options = {
        "weight decay": optimizer.weight_decay or None,
        "gradient norm clipped at": optimizer.global_clipnorm,
        "EMA": optimizer.ema_momentum,
        "layer decay": optimizer.layer_decay,
    }
    return line + "".join(f", {name} {value:g}" for name, value in options.items() if value is not None)
