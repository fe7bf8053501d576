"""While several processes train: an error or the death of one ends the others, and each says for whom it waits.

The processes share a key-value store, which the first one serves (the coordination service of TensorFlow or JAX).
"""

import re
import sys
import threading
import time
from typing import Any

import keras
import tensorflow as tf

from keras_vit.recipes.keras_internals import key_value_store
from keras_vit.recipes.processes.jax_devices import JaxDevices, leave_without_barrier
from keras_vit.recipes.processes.rendezvous import end_now, is_listening, is_served, set_last_words
from keras_vit.recipes.processes.workers import Workers, count_event, events

PAUSE = 3.0  # seconds between two looks at the store
WAITS, MORE = 20.0, 10.0  # seconds without a step, and then until the others, too, must have waited: 30 in all
ANSWERS = 8.0  # how long a process that fails waits until all others know
LAG = 60.0  # how long the first process waits for others that write their files, after a good run
GRACE = 15.0  # how long the others may take to end by themselves
UNREACHABLE = 60.0  # seconds without a step after which a run ends whose tf.data service accepts no connection
TERMINATED = 75  # exit status after SIGTERM and a saved checkpoint, of all processes: EX_TEMPFAIL, "try again later"
LOST = re.compile("gloo|nccl|collective|coordination|connection (reset|closed|refused)|socket closed|peer", re.I)
RESUME = "Look at its log, then start all processes again with run.resume=True."
_blocks = 0  # of this process, which are the same in all
_is_trained = threading.Event()  # whether only evaluations remain, which no tf.data service prepares


class Store:
    """The key-value store. Its functions raise ConnectionError once the first process is gone."""

    def __init__(self, functions):
        self._set, self._get = functions

    def set(self, key: str, value: str):
        """Sets a key, unless it has a value."""
        try:
            self._set(key, value)
        except (tf.errors.OpError, RuntimeError) as error:
            if "already exists" not in str(error):
                raise ConnectionError(str(error)) from error

    def get(self, key: str, seconds: float = 1.0) -> str | None:
        """The value of a key, None if it gets none in this time."""
        try:
            return self._get(key, round(1000 * seconds))
        except (tf.errors.OpError, RuntimeError) as error:
            if "timed out" in str(error):
                return None
            raise ConnectionError(str(error)) from error


class Watch:
    """Context of the training of a recipe. With one process it only watches a tf.data service, if there is one."""

    def __init__(self, workers: Workers, service: str | None = None):
        global _blocks
        _blocks += 1
        _is_trained.clear()
        self.workers, self.service, self.ended = workers, service, threading.Event()
        self.failure: str | None = None  # of another process
        count_event()
        self.prefix = f"keras_vit/{_blocks}/"
        # On a slice of TPUs that JAX has found by itself there is no store: libtpu ends the others.
        several = len(workers.names) > 1
        functions = key_value_store(isinstance(workers.strategy, JaxDevices)) if several else None
        self.store: Any = Store(functions) if functions else None

    def __enter__(self):
        self.thread = threading.Thread(target=self._watch, daemon=True)
        if self.store or self.service:
            self.thread.start()
        if self.store and keras.backend.backend() == "jax":
            others = [name for i, name in enumerate(self.workers.names) if i != self.workers.index]
            set_last_words(_gone(others if len(others) == 1 else ["Another process"]))
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        stopped = isinstance(error, SystemExit) and error.code == TERMINATED
        agreed = error is None or stopped or (isinstance(error, KeyboardInterrupt) and error.args)
        if self.store and agreed:
            self._leave(together=error is None)
        if agreed or not self.store:
            return
        lost = _is_lost(error)
        text = self.failure or self._tell(error, lost)
        if lost and text:
            raise ConnectionError(text) from error

    def _leave(self, together: bool):
        """Says that this process may end; the first, which serves the store, may wait until the others say so."""
        try:
            self.store.set(self._key("done", self.workers.index), "yes")
            waits = together and self.workers.chief
            end, others = time.monotonic() + LAG, range(1, len(self.workers.names)) if waits else ()
            for index in others:
                while self.store.get(self._key("done", index)) is None and time.monotonic() < end:
                    pass  # `get` waits for a second
        except ConnectionError:
            pass  # its own run is complete

    def _tell(self, error, lost: bool) -> str | None:
        """Tells the others that this process ends, and waits until they know; returns what ended it, if it was lost."""
        own = f"{type(error).__name__}: {error}".strip(": ")
        if not lost and keras.backend.backend() == "jax":
            set_last_words(str(error))  # the others may leave before this process
        try:
            self.store.set(self._key("failure"), f"{self.workers.index}{' lost' if lost else ''}\n{own}")
            self.store.set(self._key("heard", self.workers.index), "yes")
            silent = self._silent(ANSWERS)
            if self.workers.chief:  # which serves the store, and so is the last to leave
                time.sleep(PAUSE)
            failure = self.store.get(self._key("failure"), ANSWERS)
            if lost and not silent and failure.startswith(f"{self.workers.index} "):
                return None  # nobody is lost: the error says what happened
            return self._cause(failure, silent)
        except ConnectionError:
            return _gone(self.workers.names[:1])
        finally:
            leave_without_barrier()

    def _cause(self, failure: str, silent: list[str]) -> str:
        """What ended the run: the error of another process or, if that one has only lost others, who is silent."""
        origin, _, text = failure.partition("\n")
        number, _, lost = origin.partition(" ")
        return _gone(silent) if lost and silent else _capital(f"{self.workers.names[int(number)]} ended with {text}")

    def _silent(self, seconds) -> list[str]:
        """Names of the processes that do not answer to a failure within some seconds."""
        end, missing = time.monotonic() + seconds, list(range(len(self.workers.names)))
        while missing := [i for i in missing if self.store.get(self._key("heard", i)) is None]:
            if time.monotonic() > end:
                break
        return [self.workers.names[i] for i in missing]

    def _key(self, *parts):
        return self.prefix + "/".join(map(str, parts))

    def _watch(self):
        said = 0.0
        try:
            while not self.ended.wait(PAUSE):
                if self.store and (found := self.store.get(self._key("failure"), 2.0)):
                    self.store.set(self._key("heard", self.workers.index), "yes")
                    return self._end(self._cause(found, self._silent(5.0) if "lost\n" in found else []))
                if self.store and (gone := self._gone()):
                    return self._end(_gone(gone))
                waited = time.monotonic() - events[1]
                if waited < WAITS:
                    said = 0.0
                elif waited > 2 * said and (self.store or not _is_trained.is_set()):
                    said = waited
                    print(f"\n{self._notice(waited)}", file=sys.stderr, flush=True)
                if self.service and waited > UNREACHABLE and not _is_trained.is_set() and not is_served(self.service):
                    return self._end(
                        f"The tf.data service {self.service} cannot be reached, and no step has ended for "
                        f"{waited:.0f} s. Start its dispatcher and workers again, then resume with run.resume=True."
                    )
        except ConnectionError:
            self._end(_gone(self.workers.names[:1]))

    def _gone(self) -> list[str]:
        """Names of the workers whose ports are closed: TensorFlow may wait half a minute for those that were killed."""
        closed = [i for i, address in enumerate(self.workers.addresses) if is_listening(address) is False]
        return [self.workers.names[i] for i in closed if self.store.get(self._key("done", i)) is None]

    def _notice(self, waited: float) -> str:
        """For whom, or for what, this process waits."""
        late = []
        if self.store:
            at = int(events[0])
            self.store.set(self._key("waits", at, self.workers.index), "yes")
            self.ended.wait(MORE)
            others = [i for i in range(len(self.workers.names)) if i != self.workers.index]
            waited += MORE
            # Those that are not waiting in the same event, or in the next one, for this process.
            late = [self.workers.names[i] for i in others if not (self._waits(at, i) or self._waits(at + 1, i))]
        if late:
            own = self.workers.names[self.workers.index]
            return _capital(f"{own} has waited for {', '.join(late)} for {waited:.0f} s.")
        if self.service and not _is_trained.is_set():
            return (
                f"No step has ended for {waited:.0f} s. The batches come from the tf.data service {self.service}: "
                "check that its dispatcher and workers run."
            )
        return f"No step has ended for {waited:.0f} s in any process: they compile, compute or wait for data."

    def _waits(self, at, index) -> bool:
        return self.store.get(self._key("waits", at, index)) is not None

    def _end(self, text: str):
        """Ends this process after another one: it has a grace time to raise by itself."""
        self.failure = text
        set_last_words(text)
        leave_without_barrier()
        if not self.ended.wait(GRACE):
            end_now(text)


class Events(keras.callbacks.Callback):
    """Tells the watch of this process that a step begins or has ended."""

    async_safe = True  # Keras may call it in a thread other than that of the training

    def _count(self, batch, logs=None):
        count_event()

    def on_train_begin(self, logs=None):
        _is_trained.clear()

    def on_train_end(self, logs=None):
        _is_trained.set()

    on_train_batch_begin = on_train_batch_end = on_test_batch_begin = on_test_batch_end = _count


def _gone(names: list[str]) -> str:
    return _capital(f"{', '.join(names)} ended without a message, or cannot be reached. {RESUME}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_lost(error) -> bool:
    """Whether an error may be that of another process that is gone."""
    while error:
        if isinstance(error, (tf.errors.OpError, RuntimeError, ValueError)) and LOST.search(str(error)):
            return True
        error = error.__cause__
    return False
