"""Downloads of TensorFlow Datasets without a connection, with toy builders and a local server."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from keras_vit.recipes.data.datasets import download_and_prepare


@pytest.fixture
def builder(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    builder = SimpleNamespace(name="toy", data_dir_root=tmp_path, data_dir=str(tmp_path / "toy"), prepared=0)
    builder.data_path, builder.MANUAL_DOWNLOAD_INSTRUCTIONS = tmp_path / "toy", None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        builder.url_infos = {f"http://127.0.0.1:{unused.getsockname()[1]}/toy.tgz": None}
    builder.download_and_prepare = lambda: setattr(builder, "prepared", builder.prepared + 1)
    return builder


def test_no_connection_is_reported_before_retries(builder):
    with pytest.raises(ConnectionError, match="'toy:1' .* 127.0.0.1"):
        download_and_prepare(builder, "toy:1")
    assert not builder.prepared


@pytest.mark.parametrize("present", ["toy/1.0.0", "downloads/toy/toy.tgz.INFO", "downloads/manual/toy.tgz"])
def test_what_is_on_the_disk_requires_no_connection(builder, tmp_path, present):
    (tmp_path / present).mkdir(parents=True)
    download_and_prepare(builder, "toy")
    assert builder.prepared == 1


class NotFound(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)

    def log_message(self, *args):
        pass


def test_any_answer_is_a_connection(builder):
    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        builder.url_infos = {f"http://127.0.0.1:{server.server_port}/toy.tgz": None}
        download_and_prepare(builder, "toy")
        server.shutdown()
    assert builder.prepared == 1
