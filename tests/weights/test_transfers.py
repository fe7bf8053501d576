"""Downloads that stall, break off, are changed or meet each other, from a server of our own."""

import base64
import hashlib
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest
from servers import serving

from keras_vit.weights import transfers
from keras_vit.weights.transfers import fetch

CONTENT = np.random.default_rng(0).bytes(100_000)


@pytest.fixture
def server(monkeypatch):
    """Serves CONTENT with ranges as Google Cloud Storage does.

    Each connection ends after `server.cuts` bytes, the first number for the first one; with `server.stalls` it stays
    open instead. `server.ranges` has the ranges that were asked for.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state, wanted = self.server, self.headers.get("Range")
            state.ranges.append(wanted)
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and state.has_ranges else 0
            if state.status or start >= len(CONTENT):
                return self.send_error(state.status or 416)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(state.length or len(CONTENT) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
            md5 = base64.b64encode(hashlib.md5(state.hashed).digest()).decode()
            for value in ("crc32c=AAAAAA==", f"md5={md5}"):
                self.send_header("x-goog-hash", value)
            self.end_headers()
            cut = state.cuts.pop(0) if state.cuts else None
            self.wfile.write(CONTENT[start:][:cut])
            self.wfile.flush()
            if cut and state.stalls:
                state.closing.wait(30)

    monkeypatch.setenv("no_proxy", "*")
    with serving(Handler) as storage:
        storage.cuts, storage.ranges, storage.stalls, storage.has_ranges = [], [], False, True
        storage.status, storage.length, storage.hashed, storage.closing = None, None, CONTENT, threading.Event()
        yield storage
        storage.closing.set()


def fetched(server, folder):
    fetch(server.url, folder / "a.npz", lambda file: True)
    return (folder / "a.npz").read_bytes()


def test_broken_connections_are_continued_within_one_call(server, tmp_path):
    server.cuts = [30_000, 20_000]
    assert fetched(server, tmp_path) == CONTENT and os.listdir(tmp_path) == ["a.npz"]
    assert server.ranges == [None, "bytes=30000-", "bytes=50000-"]


def test_a_stalled_server_is_given_up_and_the_next_call_continues(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(transfers, "ATTEMPTS", 1)
    server.stalls, server.cuts = True, [30_000]
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="0.2 s.* 30,000 bytes"):
        fetched(server, tmp_path)
    assert time.monotonic() - start < 10 and os.listdir(tmp_path) == [".a.npz.part"]
    assert fetched(server, tmp_path) == CONTENT and server.ranges[-1] == "bytes=30000-"


def test_partial_files_of_killed_processes_are_continued_and_those_of_live_ones_are_not(server, tmp_path):
    killed, live = (tmp_path / f".a.npz-{letter}.part" for letter in "ab")
    killed.write_bytes(CONTENT[:400])
    live.write_bytes(CONTENT[:500])
    os.utime(killed, (0, 0))
    assert fetched(server, tmp_path) == CONTENT and server.ranges == ["bytes=400-"]
    assert sorted(os.listdir(tmp_path)) == [live.name, "a.npz"]


@pytest.mark.parametrize(
    "left,has_ranges", [(b"old" * 100, True), (CONTENT + b"more", True), (CONTENT[:400], False)],
    ids=["of an older file", "longer than the file", "server without ranges"],
)  # fmt: skip
def test_partial_files_that_do_not_fit_are_replaced(server, tmp_path, left, has_ranges):
    server.has_ranges = has_ranges
    (tmp_path / ".a.npz.part").write_bytes(left)
    assert fetched(server, tmp_path) == CONTENT and os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.parametrize(
    "answer,error,message",
    [
        ({"hashed": b"something else"}, ConnectionError, "MD5"),
        ({"length": 10**16}, OSError, "10,000,000,000,000,000"),  # the disk is not filled
        ({"status": 503}, HTTPError, "503"),
    ],
)
def test_failures_leave_nothing(server, tmp_path, answer, error, message):
    vars(server).update(answer)
    with pytest.raises(error, match=message) as raised:
        fetched(server, tmp_path)
    if error is HTTPError:
        raised.value.close()
    assert not os.listdir(tmp_path)


def test_many_at_once(server, tmp_path):
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ".a.npz-killed.part").write_bytes(CONTENT[:9])
        os.utime(folder / ".a.npz-killed.part", (0, 0))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fetch, [server.url] * 8, [folder / "a.npz"] * 8, [Path.exists] * 8))
        assert os.listdir(folder) == ["a.npz"] and (folder / "a.npz").read_bytes() == CONTENT
