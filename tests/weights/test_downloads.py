"""Published checkpoints and repositories of the Hugging Face Hub, from servers of our own."""

import hashlib
import io
import json
import os
import socket
import sys
import tempfile
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from huggingface_hub import constants
from servers import serving

from keras_vit.weights import downloads, published
from keras_vit.weights.downloads import cache_path, download, download_hugging_face

NAME = "vit/imagenet21k/R50+ViT-B_16"
PATH = "vit_models/imagenet21k/R50%2BViT-B_16.npz"


def npz():
    file = io.BytesIO()
    np.savez(file, weights=np.random.default_rng(0).standard_normal((100, 100)).astype("float32"))
    return file.getvalue()


NPZ = npz()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Local storage and an empty cache. `server.answer` is (status, declared length or None, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            status, length, body = self.server.answer
            self.send_response(status)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            if self.server.stalls:
                self.server.closing.wait(30)

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    with serving(Handler) as storage:
        storage.requests, storage.answer = [], (200, len(NPZ), NPZ)
        storage.stalls, storage.closing = False, threading.Event()
        monkeypatch.setattr(published, "STORAGE", storage.url)
        yield storage


def files(folder):
    return [file for file in folder.rglob("*") if file.is_file()]


def test_files_are_downloaded_once(server, tmp_path, monkeypatch):
    path = download(NAME)
    assert path == cache_path(NAME) == tmp_path / "home/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    assert path.read_bytes() == NPZ and files(tmp_path) == [path] and server.requests == [f"/{PATH}"]
    assert download(NAME + ".npz") == path and len(server.requests) == 1
    with pytest.raises(ValueError, match="'B_16.npz'"):
        download("B_16.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", "here")
    assert download(NAME) == tmp_path / "here/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    monkeypatch.delenv("KERAS_HOME")
    assert str(cache_path("bit/BiT-S-R50x1")) == os.path.expanduser("~/.keras/keras_vit/bit/BiT-S-R50x1.npz")


FAILURES = {
    "closed early": (200, len(NPZ), NPZ[:20000], "20000"),
    "closed early, length unknown": (200, None, NPZ[:20000], "damaged"),
    "corrupted": (200, len(NPZ), NPZ[:20000] + b"?" + NPZ[20001:], "damaged"),
    "a web page": (200, 14, b"<html> hello </", "damaged"),
    "overloaded": (503, 0, b"", "503"),
    "forbidden": (403, 0, b"", "403"),
    "not found": (404, 0, b"", "404"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_failed_downloads(server, tmp_path, kind):
    *server.answer, reason = FAILURES[kind]
    with pytest.raises(FileNotFoundError if reason in ("403", "404") else ConnectionError, match=reason) as error:
        download(NAME)
    assert f"{published.STORAGE}/{PATH}" in str(error.value)
    assert isinstance(error.value, FileNotFoundError) or str(cache_path(NAME)) in str(error.value)
    assert not files(tmp_path)
    server.answer = (200, len(NPZ), NPZ)
    assert download(NAME).read_bytes() == NPZ and files(tmp_path) == [cache_path(NAME)]


def test_a_server_that_stalls_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT_S", 0.2)
    server.answer, server.stalls = (200, len(NPZ), NPZ[:20000]), True
    with pytest.raises(ConnectionError, match="timed out"):
        download(NAME)
    server.closing.set()
    assert not files(tmp_path) and socket.getdefaulttimeout() is None


def test_many_downloads_at_once(server, tmp_path):
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(download, [NAME] * 8)) == {cache_path(NAME)}
    assert files(tmp_path) == [cache_path(NAME)] and cache_path(NAME).read_bytes() == NPZ


def test_without_network_the_message_has_the_path_for_a_manual_download(server, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(published, "STORAGE", f"http://127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(ConnectionError) as error:
        download(NAME)
    assert published.STORAGE in str(error.value) and str(cache_path(NAME)) in str(error.value)
    cache_path(NAME).write_bytes(NPZ)
    assert download(NAME) == cache_path(NAME)


@contextmanager
def other_user():
    """For root, to whom permissions do not apply: runs as another user."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_cache(server, monkeypatch):
    with other_user(), tempfile.TemporaryDirectory() as home:  # tmp_path is closed to other users
        monkeypatch.setenv("KERAS_HOME", home)
        path = download(NAME)
        os.chmod(home + "/keras_vit/vit", 0o555)
        assert download(NAME) == path
        with pytest.raises(OSError, match="KERAS_HOME"):
            download("vit/sam/ViT-B_16")
        os.chmod(home + "/keras_vit/vit", 0o755)


JSON = "application/json"
HUB_FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 8}


@pytest.fixture
def hub_server(monkeypatch, tmp_path):
    """A server with the addresses of the Hugging Face Hub and the repository a/b; `sent` replaces a file's bytes."""
    commit = "0123456789" * 4

    info = {"id": "a/b", "sha": commit, "siblings": [{"rfilename": name} for name in HUB_FILES], "tags": []}
    info |= {"private": False, "disabled": False, "downloads": 0, "likes": 0}
    tree = [{"type": "file", "path": name, "size": len(x), "oid": "0"} for name, x in HUB_FILES.items()]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(self.do_HEAD() or b"")

        def do_HEAD(self):
            name, headers = self.path.split("?")[0].rpartition("/")[2], {}
            if self.path.startswith("/api/models/a/b/"):
                content, headers = json.dumps(tree if "/tree/" in self.path else info).encode(), {"Content-Type": JSON}
            elif name in HUB_FILES:
                content, digest = self.server.sent.get(name, HUB_FILES[name]), hashlib.sha256(HUB_FILES[name])
                headers = {"ETag": f'"{digest.hexdigest()}"', "X-Repo-Commit": commit, "X-Linked-Size": len(content)}
            else:
                return self.send_error(404)
            self.send_response(200)
            for key, value in {**headers, "Content-Length": len(content)}.items():
                self.send_header(key, str(value))
            self.end_headers()
            return content

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with serving(Handler) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        server.sent = {}
        yield server


def test_files_of_the_hub_are_held_against_its_sha256(hub_server):
    hub_server.sent["model.safetensors"] = HUB_FILES["model.safetensors"][:-1] + b"?"
    with pytest.raises(ConnectionError, match="model.safetensors.*SHA-256"):
        download_hugging_face("hf:a/b")
    hub_server.sent.clear()
    folder = download_hugging_face("hf:a/b")
    assert {name: (folder / name).read_bytes() for name in HUB_FILES} == HUB_FILES


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A fake huggingface_hub: repositories hold `hub.files`, calls are recorded, `hub.error` is raised if set."""
    module = types.ModuleType("huggingface_hub")
    module.files, module.calls, module.error = ["config.json", "model.safetensors"], [], None

    def snapshot_download(repo_id, **arguments):
        module.calls.append((repo_id, arguments))
        if module.error:
            raise module.error
        for file in module.files:
            (tmp_path / file).write_text("{}")
        return str(tmp_path)

    module.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return module


@pytest.mark.parametrize("repository,revision", [("timm/vit_b.augreg_in21k", None), ("a/deit-tiny", "refs/pr/1")])
def test_repositories_are_downloaded_to_a_folder(hub, tmp_path, repository, revision):
    assert download_hugging_face(f"hf:{repository}" + (f"@{revision}" if revision else "")) == tmp_path
    patterns = ["config.json", "preprocessor_config.json", "processor_config.json", "open_clip_config.json"]
    patterns += ["*.safetensors", "*.safetensors.index.json"]
    assert hub.calls == [(repository, {"revision": revision, "allow_patterns": patterns})]


def test_hugging_face_errors(hub, monkeypatch):
    for name in ("hf:vit", "hf:a/b/c", "google/vit", "hf:google/", "hf:a/b@", "hf: a/b", "hf:a/b@x y"):
        with pytest.raises(ValueError, match="hf:owner/name"):
            download_hugging_face(name)
    assert not hub.calls
    hub.files = ["config.json", "pytorch_model.bin"]
    with pytest.raises(ValueError, match="pytorch_model.bin"):
        download_hugging_face("hf:a/b")
    hub.error = OSError("404 Client Error.")
    with pytest.raises(ConnectionError, match="https://huggingface.co/a/b: 404"):
        download_hugging_face("hf:a/b")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="huggingface_hub"):
        download_hugging_face("hf:a/b")


def test_huggingface_hub_offline(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match="https://huggingface.co/keras-vit/nowhere"):
        download_hugging_face("hf:keras-vit/nowhere")
