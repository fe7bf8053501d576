import socket
import threading
import time

import pytest

from keras_vit.recipes.processes import rendezvous
from keras_vit.recipes.processes.rendezvous import listen, split_address, wait_for_workers
from keras_vit.recipes.runs.agreement import check_equal


def free_addresses(count):
    servers = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return addresses


def test_workers_meet_in_any_order(monkeypatch, capfd):
    monkeypatch.setattr(rendezvous, "SAY_AFTER", 0.2)
    addresses, met = free_addresses(3), []

    def worker(index):
        wait_for_workers(addresses, index, 20)
        met.append(index)
        with listen(addresses[index]):  # as TensorFlow's server, for those that came later
            time.sleep(2)

    threads = [threading.Thread(target=worker, args=(index,)) for index in (2, 0)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    assert not met
    worker(1)
    for thread in threads:
        thread.join()
    assert sorted(met) == [0, 1, 2]
    assert f"Worker 0 is waiting for worker 1 at {addresses[1]}." in capfd.readouterr().err


def test_a_missing_worker_and_a_port_in_use_are_named():
    one, other = free_addresses(2)
    with pytest.raises(ValueError, match=f"Not started within 0 s: worker 1 at {other}. .*run.join_seconds"):
        wait_for_workers([one, other], 0, 0)
    with listen(one), pytest.raises(ValueError, match=f"cannot use port {one.partition(':')[2]} .*in use"):
        wait_for_workers([one, other], 0, 0)


def test_addresses():
    assert split_address("10.0.0.1:2222") == ("10.0.0.1", 2222) and split_address("[::1]:80") == ("::1", 80)
    with pytest.raises(ValueError, match="Received: '10.0.0.1'"):
        split_address("10.0.0.1")


class Three:
    """Three processes, of which the last one has its own facts."""

    def __init__(self, facts):
        self.facts = facts

    def gather_text(self, text):
        return [text, text, self.facts]


def test_differences_name_field_values_and_process():
    check_equal({"a": 1, "b": (2.0, None)}, Three('{"a": "1", "b": "(2.0, None)"}'))
    with pytest.raises(ValueError, match=r"in b: 'x' in process 0, none in process 2; c: none .*, 3 in process 2\."):
        check_equal({"a": 1, "b": "x"}, Three('{"a": "1", "c": "3"}'))
