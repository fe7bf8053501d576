"""Downloads from a local npm registry."""

import base64
import hashlib
import io
import socket
import tarfile
from http.server import SimpleHTTPRequestHandler

import pytest
from servers import handler_of, serving

from keras_vit.export.web import page
from keras_vit.export.web.page import Package, fetch_web_runtime, unpack_web_runtime

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
    monkeypatch.setattr(page, "PACKAGES", (package,))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    handler, paths = handler_of(tmp_path / "registry"), []
    handler.do_GET = lambda self: paths.append(self.path) or SimpleHTTPRequestHandler.do_GET(self)
    with serving(handler) as server:
        monkeypatch.setenv("npm_config_registry", f"{server.url}/")
        yield paths


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
    with pytest.raises(ConnectionError, match="sha512.*npm pack @scope/name@1.0.0"):
        fetch_web_runtime()
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    served.write_bytes(content)
    (path,) = fetch_web_runtime()
    path.write_bytes(b"changed")
    with pytest.raises(ValueError, match="scope-name-1.0.0.tgz"):
        unpack_web_runtime(tmp_path / "page")


def test_message_without_network(requests, tmp_path, monkeypatch):
    (tmp_path / "registry/@scope/name/-/name-1.0.0.tgz").unlink()
    with pytest.raises(ConnectionError, match=r"404 .*http://.*name-1.0.0.tgz"):
        fetch_web_runtime()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(ConnectionError, match=r"refused.* to .*home/keras_vit/web/scope-name-1.0.0.tgz"):
            fetch_web_runtime()
