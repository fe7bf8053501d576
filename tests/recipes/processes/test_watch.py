"""The end of a good run of several processes; how others end is in tests/journeys/test_ends_of_processes.py."""

import socket
import threading
import time
from types import SimpleNamespace

from keras_vit.recipes.processes import watch


class Shared:
    """A key-value store in this process, which waits for a key as those of TensorFlow and JAX."""

    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key, seconds=0.01):
        time.sleep(0 if key in self.values else seconds)
        return self.values.get(key)


def test_the_first_process_which_serves_the_store_leaves_last(monkeypatch):
    store = Shared()
    first, second = (watch.Watch.__new__(watch.Watch) for _ in range(2))
    for index, each in enumerate((first, second)):
        each.workers = SimpleNamespace(index=index, chief=index == 0, names=["a", "b"])
        each.store, each.prefix = store, "run/"
    waiting = threading.Thread(target=first._leave, args=[True])
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    second._leave(together=True)  # at once
    waiting.join(5)
    assert not waiting.is_alive()
    store.values.clear()
    monkeypatch.setattr(watch, "LAG", 0.1)  # the other was killed after its last step
    first._leave(together=True)


def test_workers_whose_ports_are_closed_are_gone_unless_they_are_done():
    servers = [socket.create_server(("localhost", 0)) for _ in range(3)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in servers]
    watched = watch.Watch.__new__(watch.Watch)
    watched.workers = SimpleNamespace(index=0, chief=True, names=["a", "b", "c"], addresses=addresses)
    watched.store, watched.prefix = Shared(), "run/"
    assert watched._gone() == []
    servers[1].close()
    servers[2].close()
    watched.store.set("run/done/2", "yes")
    assert watched._gone() == ["b"]
    servers[0].close()
