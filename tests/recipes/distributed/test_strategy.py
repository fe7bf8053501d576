import json
import socket

import pytest
import tensorflow as tf

from keras_vit.recipes.distributed import jax_devices
from keras_vit.recipes.distributed import strategy as strategies
from keras_vit.recipes.distributed.strategy import choose_strategy

VARIABLES = ("TPU_NAME", "TF_CONFIG")


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    strategies._tpu_strategy.cache_clear()


def workers(count, index):
    """TF_CONFIG of one of `count` workers on free ports of this machine."""
    servers = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}


def test_auto_uses_the_cpu_if_there_is_nothing_else():
    assert choose_strategy("auto") is tf.distribute.get_strategy()
    assert choose_strategy("one-device").num_replicas_in_sync == 1


def test_mirrored_uses_all_logical_cpus_without_a_gpu():
    strategy = choose_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == 4


@pytest.mark.parametrize(
    "name,message",
    [
        ("tpu", "TensorFlow finds no TPU.*run.strategy='auto'"),
        ("multi-worker", "TF_CONFIG"),
        ("gpu", "Received: 'gpu'"),
    ],
)
def test_missing_hardware_is_reported(name, message):
    with pytest.raises(ValueError, match=message):
        choose_strategy(name)


def test_one_device_of_several_processes_on_jax(monkeypatch):
    for variable, value in zip(jax_devices.PROCESSES, ("localhost:1234", "2", "0")):
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match="NUM_PROCESSES=2 names several, .* Use run.strategy='auto', or unset"):
        jax_devices.choose_devices("one-device")


@pytest.mark.parametrize("name", ["auto", "one-device", "multi-worker"])
def test_incomplete_processes_on_jax(name, monkeypatch):
    for variable in jax_devices.PROCESSES[:2]:
        monkeypatch.setenv(variable, "2")
    with pytest.raises(ValueError, match="Missing: KERAS_DISTRIBUTION_PROCESS_ID. Received: run.strategy="):
        jax_devices.choose_devices(name)


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
def test_invalid_tf_config_raises(name, config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG on every worker.*Received"):
        choose_strategy(name)


def test_multi_worker_after_an_operation_raises(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers(2, 0)))
    tf.constant(1.0) + 1.0
    with pytest.raises(ValueError, match="before TensorFlow executes an operation"):
        choose_strategy("multi-worker")


def test_tpu_that_does_not_respond_is_reported(monkeypatch):
    def connect(name):
        raise tf.errors.NotFoundError(None, None, f"no device of {name}\nand a long trace")

    monkeypatch.setenv("TPU_NAME", "far")
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connect)
    with pytest.raises(ValueError, match="The TPU 'far' does not respond.*NotFoundError: no device of far and a long"):
        choose_strategy("auto")


def test_tpu_is_initialized_once(monkeypatch):
    connected = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["TPU:0"] if kind == "TPU" else [])
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connected.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: object())
    assert choose_strategy("auto") is choose_strategy("tpu")
    assert connected == ["local"]
