"""The end of a good run of several processes; how others end is in tests/journeys/test_ends_of_processes.py."""

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
    waiting = threading.Thread(target=first._leave_together)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    second._leave_together()  # at once
    waiting.join(5)
    assert not waiting.is_alive()
    store.values.clear()
    monkeypatch.setattr(watch, "LAG", 0.1)  # the other was killed after its last step
    first._leave_together()
