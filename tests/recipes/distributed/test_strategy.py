import json
import socket

import pytest
import tensorflow as tf

from keras_vit.recipes.distributed import strategy as strategies
from keras_vit.recipes.distributed.strategy import choose_strategy

VARIABLES = ("TPU_NAME", "TF_CONFIG")


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    strategies._tpu_strategy.cache_clear()


def workers(count, index):
    """TF_CONFIG of one of so many workers on this machine, on ports that are free."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    places = [f"localhost:{place.getsockname()[1]}" for place in sockets]
    for place in sockets:
        place.close()
    return {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}}


def test_auto_takes_the_processor_where_there_is_nothing_else():
    assert choose_strategy("auto") is tf.distribute.get_strategy()
    assert choose_strategy("one-device").num_replicas_in_sync == 1


def test_mirrored_uses_all_logical_cpus_without_a_gpu():
    strategy = choose_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == 2


@pytest.mark.parametrize(
    "name,message",
    [("tpu", "TensorFlow sees no TPU.*strategy='auto'"), ("multi-worker", "TF_CONFIG"), ("gpu", "Received: 'gpu'")],
)
def test_what_is_not_there_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        choose_strategy(name)


@pytest.mark.parametrize("name", ["auto", "multi-worker"])
@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
    ],
)
def test_a_broken_tf_config_does_not_train_alone(name, config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG on every worker.*Received"):
        choose_strategy(name)


def test_workers_that_come_too_late_are_told(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers(2, 0)))
    tf.constant(1.0) + 1.0
    with pytest.raises(ValueError, match="came too late"):
        choose_strategy("multi-worker")


def test_a_tpu_that_does_not_answer_is_told(monkeypatch):
    def connect(name):
        raise tf.errors.NotFoundError(None, None, f"no device of {name}\nand a long trace")

    monkeypatch.setenv("TPU_NAME", "far")
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connect)
    with pytest.raises(ValueError, match="The TPU 'far' does not answer.*NotFoundError: no device of far and a long"):
        choose_strategy("auto")


def test_a_tpu_is_initialised_once(monkeypatch):
    connected = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["TPU:0"] if kind == "TPU" else [])
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connected.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: object())
    assert choose_strategy("auto") is choose_strategy("tpu")
    assert connected == ["local"]
