"""Downloads that stall, break off, are changed or meet each other, from a server of our own."""

import base64
import hashlib
import http.server
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest

from keras_vit.weights import transfers
from keras_vit.weights.transfers import fetch

CONTENT = np.random.default_rng(0).bytes(100_000)


@pytest.fixture
def server(monkeypatch):
    """Serves `server.content` with ranges as Google Cloud Storage does.

    Each connection ends after `server.cuts` bytes, the first number for the first one; with `server.stalls` it stays
    open instead. `server.ranges` has the ranges that were asked for.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            self.server.ranges.append(wanted)
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.server.has_ranges else 0
            content = self.server.content
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(self.server.length or len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("x-goog-hash", f"md5={base64.b64encode(self.server.md5 or md5(content)).decode()}")
            self.end_headers()
            cut = self.server.cuts.pop(0) if self.server.cuts else None
            self.wfile.write(content[start:][:cut])
            self.wfile.flush()
            if cut and self.server.stalls:
                self.server.closing.wait(30)

        def log_message(self, *_):
            pass

    storage = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    storage.content, storage.cuts, storage.ranges, storage.stalls = CONTENT, [], [], False
    storage.md5, storage.length, storage.has_ranges, storage.closing = None, None, True, threading.Event()
    storage.address = f"http://127.0.0.1:{storage.server_port}/file"
    thread = threading.Thread(target=storage.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("no_proxy", "*")
    yield storage
    storage.closing.set()
    storage.shutdown()
    thread.join()
    storage.server_close()


def md5(content):
    return hashlib.md5(content).digest()


def fetched(server, folder, check=lambda file: True):
    fetch(server.address, folder / "a.npz", check)
    assert os.listdir(folder) == ["a.npz"]
    return (folder / "a.npz").read_bytes()


def test_broken_connections_are_continued_within_one_call(server, tmp_path):
    server.cuts = [30_000, 20_000]
    assert fetched(server, tmp_path) == CONTENT
    assert server.ranges == [None, "bytes=30000-", "bytes=50000-"]


def test_a_stalled_server_is_given_up_and_the_next_call_continues(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(transfers, "ATTEMPTS", 1)
    server.stalls, server.cuts = True, [30_000]
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="the server sent nothing for 0.2 s; 30,000 bytes are kept"):
        fetch(server.address, tmp_path / "a.npz", lambda file: True)
    assert time.monotonic() - start < 10 and os.listdir(tmp_path) == [".a.npz.part"]
    assert fetched(server, tmp_path) == CONTENT and server.ranges[-1] == "bytes=30000-"


def test_partial_files_of_killed_processes_are_continued_and_those_of_live_ones_are_not(server, tmp_path):
    killed, live = (tmp_path / f".a.npz-{letter}.part" for letter in "ab")
    killed.write_bytes(CONTENT[:400])
    live.write_bytes(CONTENT[:500])
    os.utime(killed, (0, 0))
    fetch(server.address, tmp_path / "a.npz", lambda file: True)
    assert (tmp_path / "a.npz").read_bytes() == CONTENT and server.ranges == ["bytes=400-"]
    assert sorted(os.listdir(tmp_path)) == [live.name, "a.npz"]


@pytest.mark.parametrize("left", [b"old" * 100, CONTENT + b"more"], ids=["of an older file", "longer than the file"])
def test_partial_files_that_do_not_fit_are_replaced(server, tmp_path, left):
    (tmp_path / ".a.npz.part").write_bytes(left)
    assert fetched(server, tmp_path) == CONTENT


def test_a_server_without_ranges(server, tmp_path):
    server.has_ranges = False
    (tmp_path / ".a.npz.part").write_bytes(CONTENT[:400])
    assert fetched(server, tmp_path) == CONTENT


def test_what_differs_from_the_stated_md5_is_removed(server, tmp_path):
    server.md5 = md5(b"something else")
    with pytest.raises(ConnectionError, match="the MD5 of what arrived is not the one that the server states"):
        fetch(server.address, tmp_path / "a.npz", lambda file: True)
    assert not os.listdir(tmp_path)


def test_the_disk_is_not_filled_by_a_file_that_does_not_fit(server, tmp_path):
    server.length = 10**16
    with pytest.raises(OSError, match="bytes free, but the file has 10,000,000,000,000,000: free some space"):
        fetch(server.address, tmp_path / "a.npz", lambda file: True)
    assert not os.listdir(tmp_path)


def test_many_at_once(server, tmp_path):
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ".a.npz-killed.part").write_bytes(CONTENT[:9])
        os.utime(folder / ".a.npz-killed.part", (0, 0))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fetch, [server.address] * 8, [folder / "a.npz"] * 8, [Path.exists] * 8))
        assert os.listdir(folder) == ["a.npz"] and (folder / "a.npz").read_bytes() == CONTENT


def test_errors_of_the_server_are_its_own(server, tmp_path, monkeypatch):
    monkeypatch.setattr(server.RequestHandlerClass, "do_GET", lambda self: self.send_error(503))
    with pytest.raises(HTTPError) as error:
        fetch(server.address, tmp_path / "a.npz", lambda file: True)
    error.value.close()
