"""Runs of small recipes from given weights, for tests/recipes/runs/test_jax_training.py.

That test runs them on TensorFlow in its own process, and this file as a program on JAX: KERAS_BACKEND=jax python
tests/jax_training.py FOLDER
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from keras_vit.recipes import run
from keras_vit.recipes.fit import evaluate, pretrain, train
from keras_vit.recipes.preflight.step_programs import RecipePrograms
from keras_vit.recipes.processes.jax_devices import PROCESSES
from keras_vit.recipes.recipe import (
    Architecture,
    Data,
    MaskedAutoencoder,
    MaskedPatch,
    Optimizer,
    Run,
    SelfSupervised,
    Supervised,
)
from keras_vit.recipes.training.callbacks import use_ema_weights
from keras_vit.recipes.training.optimizers import SGD

STEPS, HALF = 10, 5
HALF_DONE = "half-done"  # the folder of a run that TensorFlow resumes
FROM_TENSORFLOW = "from-tensorflow"  # the folder of a run that TensorFlow began
REPLICAS = 4  # of the programs for a TPU
ARCHITECTURE = Architecture("Ti/4", depth=1, width=24, mlp_dim=48, num_heads=3, pooling="gap")
DATA = Data("digits", image_size=8, batch_size=16, min_crop_area=0.5, flip=False, validation_split=None)
# Every step is clipped.
OPTIMIZER = Optimizer("adamw", learning_rate=1e-2, warmup_steps=2, weight_decay=0.1, global_clipnorm=0.1)
RUN = Run(precision="float32", epoch_steps=HALF, checkpoint_steps=HALF, steps_per_execution=HALF, strategy="one-device")
SUPERVISED = Supervised(
    architecture=ARCHITECTURE,
    data=replace(DATA, validation_split="test[:50]"),  # of the averages of the weights
    optimizer=replace(OPTIMIZER, ema_momentum=0.9, accumulation_steps=2),
    run=RUN,
    total_steps=STEPS,
)
# Of which the compiler sums the gradients by reduce-scatters.
WIDE = replace(SUPERVISED, architecture=replace(ARCHITECTURE, width=512, mlp_dim=512, num_heads=4))
# The state of its random generators is part of a checkpoint, but it drops nothing.
NO_DROPS = replace(SUPERVISED, architecture=replace(ARCHITECTURE, dropout=1e-9))
MASKED = MaskedPatch(architecture=ARCHITECTURE, data=DATA, optimizer=OPTIMIZER, run=RUN, total_steps=STEPS)
DECODER = {"masked_fraction": 0.5, "decoder_depth": 1, "decoder_width": 12, "decoder_heads": 3, "total_steps": STEPS}
RECIPES = {
    "masked-patch": MASKED,
    "supervised": SUPERVISED,
    "masked-autoencoder": MaskedAutoencoder(ARCHITECTURE, DATA, OPTIMIZER, RUN, **DECODER),
    "muon": replace(SUPERVISED, optimizer=replace(OPTIMIZER, name="muon")),
    "lamb": replace(MASKED, optimizer=replace(OPTIMIZER, name="lamb")),
    "sgd": replace(MASKED, optimizer=replace(OPTIMIZER, name="sgd", learning_rate=0.1)),
}
SHARDED = ("masked-patch", "supervised", "muon", "lamb", "sgd")  # with and without `run.shard_optimizer`


class Start(keras.callbacks.Callback):
    """Sets the same weights on every backend at the start of a training, and stops it after some steps."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.stop_at = stop_at

    def on_train_begin(self, logs=None):
        model, random = self.model, np.random.default_rng(0)
        if not int(keras.ops.convert_to_numpy(model.optimizer.iterations)):  # not of a run that is resumed
            for weight in model.trainable_variables:
                weight.assign(random.normal(scale=0.1, size=weight.shape).astype("float32"))

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch + 1 == self.stop_at


def trained(recipe, stop_at=None) -> dict[str, np.ndarray]:
    """The weights after a run, and the loss of its last epoch; of a classifier also its metrics on the test images."""
    function = pretrain if isinstance(recipe, SelfSupervised) else train
    model, history = function(recipe, callbacks=[Start(stop_at)])
    results = {str(i): keras.ops.convert_to_numpy(weight) for i, weight in enumerate(model.trainable_variables)}
    results["last_loss"] = history["loss"][-1]
    if isinstance(recipe, Supervised):
        results |= {"val_loss": history["val_loss"][-1], **evaluate(model, recipe.data, "test")}
    return results


def linear(**options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
    model.compile(SGD(0.1, momentum=0.9, use_ema=True, **options), "mse")
    return model


def after_bad_steps(bad) -> dict[str, np.ndarray]:
    """All variables after five good batches of 4, and bad ones, with a NaN, before those at the positions `bad`."""
    random, model = np.random.default_rng(0), linear(global_clipnorm=1.0)
    inputs, targets = random.standard_normal((5, 4, 3)), random.standard_normal((5, 4, 2))
    inputs, targets = np.insert(inputs, bad, np.nan, axis=0), np.insert(targets, bad, 0.0, axis=0)
    model.fit(inputs.reshape(-1, 3), targets.reshape(-1, 2), batch_size=4, shuffle=False, verbose=0)
    variables = [*model.weights, *model.optimizer.variables]
    return {f"{i}": keras.ops.convert_to_numpy(variable) for i, variable in enumerate(variables)}


def used_after_ema() -> list[np.ndarray]:
    """The weights of a model that is evaluated and trained again with the averages of its weights."""
    inputs, model = np.random.default_rng(0).standard_normal((8, 3)), linear()
    for _ in range(2):
        model.fit(inputs, inputs[:, :2], batch_size=4, shuffle=False, verbose=0)
        use_ema_weights(model)
        model.evaluate(inputs, inputs[:, :2], verbose=0)
    return model.get_weights()


def on_devices(recipe, strategy, **run):
    return replace(recipe, run=replace(recipe.run, strategy=strategy, **run))


def resumable(recipe, folder, strategy="one-device"):
    return on_devices(recipe, strategy, folder=str(folder), resume=True)


def main(folder):
    def save(name, results):
        np.savez(folder / f"{name}.npz", **results)

    if PROCESSES[-1] in os.environ:
        recipe = resumable(SUPERVISED, folder / "processes", "multi-worker")
        sharded = on_devices(recipe, "multi-worker", shard_optimizer=True)
        trained(sharded, stop_at=HALF)
        save(f"process-{os.environ[PROCESSES[-1]]}", trained(sharded))
        run(recipe)  # only evaluates, and the first process writes the results
        return
    for name, recipe in RECIPES.items():
        save(name, trained(on_devices(recipe, "mirrored")))
    for name in SHARDED:
        save(f"{name}-sharded", trained(on_devices(RECIPES[name], "mirrored", shard_optimizer=True)))
    save("one-device", trained(SUPERVISED))
    dropout = replace(SUPERVISED, architecture=replace(ARCHITECTURE, depth=2, dropout=0.5, stochastic_depth=0.5))
    save("whole", trained(on_devices(dropout, "mirrored")))
    trained(resumable(dropout, folder / "resumed", "mirrored"), stop_at=HALF)
    save("resumed", trained(resumable(dropout, folder / "resumed", "mirrored")))
    resumed = on_devices(resumable(NO_DROPS, folder / FROM_TENSORFLOW), "mirrored", shard_optimizer=True)
    save(FROM_TENSORFLOW, trained(resumed))
    trained(resumable(NO_DROPS, folder / HALF_DONE), stop_at=HALF)
    save("good-steps", after_bad_steps([]))
    save("bad-steps", after_bad_steps([0, 2, 2]))
    np.savez(folder / "after-ema.npz", *used_after_ema())
    programs = RecipePrograms(SUPERVISED, 10, STEPS, REPLICAS)
    for kind, batch_size in (("training", 4), ("evaluation", 16)):
        (folder / f"{kind}.hlo").write_bytes(programs.lower(kind, batch_size).hlo)
    programs = RecipePrograms(on_devices(WIDE, "auto", shard_optimizer=True), 10, STEPS, REPLICAS)
    (folder / "sharded.hlo").write_bytes(programs.lower("training", 4).hlo)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
