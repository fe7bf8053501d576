import json
import socket

import pytest
import tensorflow as tf

from keras_vit.recipes.processes import strategies
from keras_vit.recipes.processes.jax_devices import PROCESSES, choose_devices
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.processes.workers import Workers, check_workers


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch):
    for name in ("TPU_NAME", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    strategies._tpu_strategy.cache_clear()


def workers(count, index):
    """TF_CONFIG of one of `count` workers on free ports of this machine."""
    servers = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}


def test_devices_of_a_machine_without_accelerators():
    assert choose_strategy("auto") is tf.distribute.get_strategy()
    assert choose_strategy("one-device").num_replicas_in_sync == 1
    strategy = choose_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == 4
    for name, message in (("tpu", "no TPU"), ("multi-worker", "TF_CONFIG")):
        with pytest.raises(ValueError, match=message):
            choose_strategy(name)


@pytest.mark.parametrize(
    "name,processes,message",
    [
        ("one-device", ("localhost:1234", "2", "0"), "NUM_PROCESSES=2"),
        ("auto", ("2", "2"), "Missing: KERAS_DISTRIBUTION_PROCESS_ID"),
        ("one-device", ("2", "2"), "Missing: KERAS_DISTRIBUTION_PROCESS_ID"),
        ("multi-worker", ("2", "2"), "Missing: KERAS_DISTRIBUTION_PROCESS_ID"),
    ],
)
def test_incomplete_or_superfluous_processes_on_jax(monkeypatch, name, processes, message):
    for variable, value in zip(PROCESSES, processes):
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=message):
        choose_devices(name)


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
    with pytest.raises(ValueError, match="TF_CONFIG on every worker"):
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
    with pytest.raises(ValueError, match="'far' .*NotFoundError: no device of far and a long"):
        choose_strategy("auto")


def test_tpu_is_initialized_once(monkeypatch):
    connected = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["TPU:0"] if kind == "TPU" else [])
    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connected.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: object())
    assert choose_strategy("auto") is choose_strategy("tpu")
    assert connected == ["local"]


@pytest.mark.parametrize(
    "cluster,task,index",
    [
        ({"worker": ["a:1", "b:1"]}, ("worker", 1), 1),
        ({"worker": ["a:1", "b:1"], "chief": ["c:1"]}, ("worker", 0), 1),
        ({"worker": ["a:1", "b:1"], "chief": ["c:1"]}, ("chief", 0), 0),
    ],
)
def test_the_number_of_a_worker(cluster, task, index):
    config = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
    addresses, number = check_workers(json.dumps(config))
    assert number == index and len(addresses) == sum(map(len, cluster.values()))


def test_one_process():
    workers = Workers(tf.distribute.get_strategy())
    assert workers.chief and workers.any(True) and not workers.any(False)
    assert workers.gather_text("ä") == ["ä"]
