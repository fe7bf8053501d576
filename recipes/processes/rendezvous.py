"""The start of a run of several processes: who is missing, and until when the others wait. Standard library only."""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

SAY_AFTER, POLL = 10.0, 0.5  # seconds
START_ALL = "Start all processes, check that they reach each other's ports, or set run.join_seconds for a longer wait."


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the process at once: a handler in Python is not called while C++ waits for others."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; raises ValueError for another text."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"The address of a process is host:port, such as 10.0.0.1:2222. Received: {address!r}")
    return host.strip("[]"), int(port)


def listen(address: str) -> socket.socket:
    """A server on the port of this process; raises ValueError, with the port, if another process has it."""
    port = split_address(address)[1]
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, backlog=1024, dualstack_ipv6=both
        )
    except OSError as error:
        raise ValueError(
            f"This process cannot use port {port} of its address {address}: {error.strerror}. End the process that "
            "uses it (`ss -ltnp` lists them), or choose another port for all processes."
        ) from error


def is_listening(address: str, seconds: float = 5.0) -> bool | None:
    """Whether a process listens there; None if the machine does not answer: it hangs, or is far away."""
    try:
        socket.create_connection(split_address(address), timeout=seconds).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True


def is_served(service: str) -> bool:
    """Whether something listens at "grpc://host:port"; TensorFlow itself would wait for ever."""
    try:
        return bool(is_listening(urlsplit(service if "://" in service else f"grpc://{service}").netloc, 10.0))
    except ValueError:  # it has no port
        return False


def wait_for_workers(addresses: list[str], index: int, limit_seconds: float):
    """Returns when each worker has listened at its address, here or, later, in TensorFlow.

    TensorFlow itself waits for an hour, without a word and without Python's handlers of signals.

    Raises:
        ValueError: The port of this worker is in use, or after the limit others are missing.
    """
    begun, said = time.monotonic(), False
    missing = [i for i in range(len(addresses)) if i != index]
    with listen(addresses[index]):  # the system answers for this process
        while missing := [i for i in missing if not is_listening(addresses[i])]:
            waited = time.monotonic() - begun
            names = ", ".join(f"worker {i} at {addresses[i]}" for i in missing)
            if waited > limit_seconds:
                raise ValueError(f"Not started within {limit_seconds:.0f} s: {names}. {START_ALL}")
            if waited > SAY_AFTER and not said:
                print(f"Worker {index} is waiting for {names}.", file=sys.stderr, flush=True)
                said = True
            time.sleep(POLL)


@contextmanager
def saying_who_is_missing(text: str) -> Iterator[None]:
    """Prints a text if the block takes long."""
    timer = threading.Timer(SAY_AFTER, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_last_words: list = []  # the text and, so that it is not collected, its handler


def set_last_words(text: str):
    """What this process prints when JAX aborts it in C++, as it does without an error in Python if another is gone."""
    if not _last_words:
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: end_now(_last_words[1]))
        ctypes.CDLL(None).signal(signal.SIGABRT, handler)
        _last_words.append(handler)
    _last_words[1:] = [text]


def end_now(text: str):
    """Ends the process with a text and status 1, whatever its other threads do."""
    os.write(2, f"\nkeras-vit: {text}\n".encode())
    os._exit(1)
