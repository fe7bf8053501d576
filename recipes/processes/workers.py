"""The processes of a run, and what they tell each other."""

import json
import os
import time
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from keras_vit.recipes.processes.jax_devices import JaxDevices, Strategy

TEXT_BYTES = 16384

# Number of steps and collective operations that this process has begun or ended, and the time of the last one.
events = [0, time.monotonic()]


def count_event():
    """Tells the `Watch` of this process that the training goes on."""
    events[:] = [events[0] + 1, time.monotonic()]


class Workers:
    """The processes of a strategy: several under `MultiWorkerMirroredStrategy` and with JAX, else only this one.

    All workers must call `any` and `gather_text` at the same points: these are collective operations.

    Attributes:
        index, names: Number of this process, and the names of all for messages.
        addresses: "host:port" of all, at which TensorFlow listens; empty with JAX.
    """

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.addresses: list[str] = []
        self.index, self.names = 0, ["process 0"]
        if isinstance(strategy, JaxDevices):
            self.index, self.names = strategy.process, [f"process {i}" for i in range(strategy.processes)]
        elif isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self.addresses, self.index = check_workers(os.environ.get("TF_CONFIG"))
            self.names = [f"worker {i} at {address}" for i, address in enumerate(self.addresses)]
        self.several, self.chief = len(self.names) > 1, self.index == 0

    def any(self, value: bool) -> bool:
        """Whether the value is true on any worker."""
        return bool(self._gather(np.array(value, "int32")).any())

    @contextmanager
    def failing_together(self, error: Exception):
        """If a block fails in one worker, it fails in all, instead of waiting for that one: with `error` in the others.

        Of errors in the block, it is for ValueError and OSError.
        """
        own = None
        try:
            yield
        except (ValueError, OSError) as raised:
            own = raised
        if self.any(own is not None):
            raise own or error

    def gather_text(self, text: str) -> list[str]:
        """The text of every worker."""
        encoded = np.frombuffer(text.encode(), "uint8").astype("int32")  # zeros are not part of UTF-8 texts
        longest = int(self._gather(np.array(len(encoded), "int32")).max())
        size = -(-longest // TEXT_BYTES) * TEXT_BYTES  # few sizes, since each is traced
        rows = self._gather(np.pad(encoded, (0, size - len(encoded))))
        return [bytes(row[row > 0].astype("uint8")).decode() for row in rows]

    def _gather(self, values: np.ndarray) -> np.ndarray:
        """The int32 array of each worker, one a row."""
        count_event()
        if isinstance(self.strategy, JaxDevices):
            return self.strategy.gather(values)
        if not self.several:
            return values[None]
        local = self.strategy.experimental_distribute_values_from_function(lambda _: tf.constant(values[None]))
        rows = self.strategy.gather(local, axis=0).numpy()
        return rows[:: len(rows) // len(self.names)]  # one of the replicas of each worker


def check_workers(tf_config) -> tuple[list[str], int]:
    """The addresses of all workers, the chief first, and the number of this one among them.

    Raises ValueError for an incomplete TF_CONFIG, with which TensorFlow would silently train on one worker.
    """
    try:
        config = json.loads(tf_config or "{}")
        cluster, task = config["cluster"], config["task"]
        own = cluster[task["type"]][int(task["index"])]
        addresses = [address for job in ("chief", "master", "worker") for address in cluster.get(job, ())]
        return addresses, addresses.index(own)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            "Several workers require the environment variable TF_CONFIG on every worker, such as "
            '\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\', '
            f"with the index of that worker. Received: {tf_config!r}"
        ) from error
