"""Downloads from a local npm registry."""

import base64
import functools
import hashlib
import io
import socket
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from keras_vit.export.web import runtime
from keras_vit.export.web.runtime import PACKAGES, Package, fetch_web_runtime, registry, unpack_web_runtime

FILES = {"dist/index.js": b"export {}", "wasm/a.wasm": b"\0asm", "../outside": b"x", "dist/other.js": b"y"}


@pytest.fixture
def requests(tmp_path, monkeypatch):
    """A registry with one small package; the list of requested paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    content = buffer.getvalue()
    served = tmp_path / "registry/@scope/name/-/name-1.0.0.tgz"
    served.parent.mkdir(parents=True)
    served.write_bytes(content)
    sha512 = base64.b64encode(hashlib.sha512(content).digest()).decode()
    package = Package("@scope/name", "1.0.0", sha512, ("dist/index.js", "wasm/a.wasm"))
    monkeypatch.setattr(runtime, "PACKAGES", (package,))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    paths = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            paths.append(self.path)

    handler = functools.partial(Handler, directory=tmp_path / "registry")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        yield paths
        server.shutdown()
        thread.join()


def test_downloaded_once_and_unpacked_by_name(requests, tmp_path):
    (path,) = fetch_web_runtime()
    assert path == tmp_path / "home/keras_vit/web/scope-name-1.0.0.tgz"
    assert fetch_web_runtime() == [path] and len(requests) == 1
    assert list(path.parent.iterdir()) == [path]
    unpack_web_runtime(tmp_path / "page")
    found = {str(file.relative_to(tmp_path / "page")) for file in (tmp_path / "page").rglob("*") if file.is_file()}
    assert found == {"name/dist/index.js", "name/wasm/a.wasm"}
    assert (tmp_path / "page/name/wasm/a.wasm").read_bytes() == b"\0asm"


def test_wrong_checksum_raises(requests, tmp_path):
    served = tmp_path / "registry/@scope/name/-/name-1.0.0.tgz"
    content = served.read_bytes()
    served.write_bytes(content + b" ")
    with pytest.raises(
        ConnectionError, match=r"sha512 differs.*npm pack @scope/name@1.0.0.* to .*scope-name-1.0.0.tgz"
    ):
        fetch_web_runtime()
    home = tmp_path / "home"
    assert not [file for file in home.rglob("*") if file.is_file()]
    served.write_bytes(content)
    (path,) = fetch_web_runtime()
    path.write_bytes(b"changed")
    with pytest.raises(ValueError, match="scope-name-1.0.0.tgz is not @scope/name 1.0.0 of npm"):
        unpack_web_runtime(tmp_path / "page")


def test_message_without_network(requests, tmp_path, monkeypatch):
    (tmp_path / "registry/@scope/name/-/name-1.0.0.tgz").unlink()
    with pytest.raises(ConnectionError, match=r"returned 404 .*download http://.*name-1.0.0.tgz by other means"):
        fetch_web_runtime()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(ConnectionError, match=r"failed: .*refused.* to .*home/keras_vit/web/scope-name-1.0.0.tgz"):
            fetch_web_runtime()


def test_registry_of_npm_settings(tmp_path, monkeypatch):
    monkeypatch.delenv("npm_config_registry", raising=False)
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\n[ "$*" = "config get registry" ] && echo https://mirror.example/npm/\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert registry() == "https://mirror.example/npm"
    npm.unlink()
    assert registry() == "https://registry.npmjs.org"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://other.example")
    assert PACKAGES[0].url == "https://other.example/@litertjs/core/-/core-2.5.3.tgz"
