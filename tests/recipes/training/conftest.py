from functools import partialmethod

import keras
import pytest
import tensorflow as tf


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
