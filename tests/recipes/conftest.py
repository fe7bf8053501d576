"""Recipes of tiny models on the digits, strategies, and models without XLA, shared by tests of training."""

from dataclasses import replace
from functools import partialmethod

import keras
import pytest
import tensorflow as tf

from keras_vit.recipes.recipe import Architecture, Data, MaskedAutoencoder, MaskedPatch, Optimizer, Run, Supervised


@pytest.fixture
def masked(data_dir):
    return MaskedPatch(
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3, dropout=0.1),
        data=Data("digits", data_dir=data_dir, image_size=8, batch_size=16, crop="none", flip=False),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=1),
        run=Run(seed=1, steps_per_execution=1),
        total_steps=4,
    )


@pytest.fixture
def autoencoder(masked):
    fields = {name: getattr(masked, name) for name in ("architecture", "data", "optimizer", "run", "total_steps")}
    return MaskedAutoencoder(**fields, decoder_depth=1, decoder_width=8, decoder_heads=2)


@pytest.fixture
def supervised(masked):
    data = replace(masked.data, validation_split=None)
    architecture = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
    optimizer = Optimizer("sgd", 0.01, warmup_steps=1)
    return Supervised(architecture, data=data, optimizer=optimizer, run=masked.run, total_steps=2)


@pytest.fixture
def without_xla(monkeypatch):
    """Models that recipes compile are not compiled by XLA, which takes seconds."""
    monkeypatch.setattr(keras.Model, "compile", partialmethod(keras.Model.compile, jit_compile=False))


@pytest.fixture
def strategy_of():
    """Function from a number of replicas, up to four, to a strategy; one replica needs none."""

    def build(replicas):
        if replicas == 1:
            return tf.distribute.get_strategy()
        devices = [f"CPU:{index}" for index in range(replicas)]
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())

    return build
