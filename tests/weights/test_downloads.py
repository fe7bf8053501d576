import hashlib
import http.server
import io
import json
import os
import socket
import sys
import tempfile
import threading
import types

import numpy as np
import pytest
from huggingface_hub import constants

from keras_vit.weights import published
from keras_vit.weights.downloads import cache_path, download, download_hugging_face

NAME = "vit/imagenet21k/R50+ViT-B_16"


def npz():
    file = io.BytesIO()
    np.savez(file, weights=np.random.default_rng(0).standard_normal((100, 100)).astype("float32"))
    return file.getvalue()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Local storage and an empty cache. `server.answer` is (status, declared length or None, body)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            status, length, body = self.server.answer
            self.send_response(status)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    storage = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    storage.requests, storage.answer = [], (200, len(npz()), npz())
    thread = threading.Thread(target=storage.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(published, "STORAGE", f"http://127.0.0.1:{storage.server_port}")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    yield storage
    storage.shutdown()
    thread.join()
    storage.server_close()


def files(folder):
    return [file for file in folder.rglob("*") if file.is_file()]


def test_files_are_downloaded_once(server, tmp_path):
    path = download(NAME)
    assert path == cache_path(NAME) == tmp_path / "home/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    assert path.read_bytes() == npz() and files(tmp_path) == [path]
    assert server.requests == ["/vit_models/imagenet21k/R50%2BViT-B_16.npz"]
    assert download(NAME + ".npz") == path and len(server.requests) == 1


@pytest.mark.parametrize(
    "answer,reason",
    [
        ((200, len(npz()), npz()[:20000]), "received 20,000 of"),
        ((200, None, npz()[:20000]), "damaged or incomplete"),
        ((200, len(npz()), npz()[:20000] + b"?" + npz()[20001:]), "damaged or incomplete"),
        ((200, 14, b"<html> hello </"), "damaged or incomplete"),
        ((503, 0, b""), "503"),
    ],
    ids=["closed early", "closed early, length unknown", "corrupted", "a web page", "overloaded"],
)
def test_failed_downloads(server, tmp_path, answer, reason):
    complete, server.answer = server.answer, answer
    with pytest.raises(ConnectionError) as error:
        download(NAME)
    address = f"{published.STORAGE}/vit_models/imagenet21k/R50%2BViT-B_16.npz"
    assert all(part in str(error.value) for part in (reason, address, f"by other means to {cache_path(NAME)}"))
    assert not [file for file in files(tmp_path) if not file.name.endswith(".part")]  # continued by the next call
    server.answer = complete
    assert download(NAME).read_bytes() == npz() and files(tmp_path) == [cache_path(NAME)]


@pytest.mark.parametrize("status", [403, 404])
def test_files_that_the_server_lacks(server, tmp_path, status):
    server.answer = (status, 0, b"")
    with pytest.raises(FileNotFoundError, match=f"no public file at {published.STORAGE}/vit_models/.*{status}"):
        download(NAME)
    assert not files(tmp_path)


def test_without_network_the_message_has_the_path_for_a_manual_download(server, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(published, "STORAGE", f"http://127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(ConnectionError, match=f"{published.STORAGE}/vit_models/imagenet21k") as error:
        download("vit/imagenet21k/ViT-B_16")
    path = cache_path("vit/imagenet21k/ViT-B_16")
    assert str(path) in str(error.value)
    path.write_bytes(npz())
    assert download("vit/imagenet21k/ViT-B_16") == path


def test_default_cache_is_in_the_folder_of_keras(monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    assert cache_path("bit/BiT-S-R50x1") == cache_path("bit/BiT-S-R50x1.npz")
    assert str(cache_path("bit/BiT-S-R50x1")) == os.path.expanduser("~/.keras/keras_vit/bit/BiT-S-R50x1.npz")


def test_only_published_names_are_downloaded():
    with pytest.raises(
        ValueError, match="'B_16.npz' is not the name of a published checkpoint. These start with augreg/"
    ):
        download("B_16.npz")


def test_relative_cache_is_in_the_working_folder(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", "here")
    assert download(NAME) == tmp_path / "here/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    assert files(tmp_path) == [download(NAME)]


@pytest.fixture
def user():
    """For root, to whom permissions do not apply: the rest of the test runs as another user."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_read_only_cache(server, monkeypatch, user):
    with tempfile.TemporaryDirectory() as home:  # tmp_path is closed to other users
        monkeypatch.setenv("KERAS_HOME", home)
        path = download(NAME)
        os.chmod(home + "/keras_vit/vit", 0o555)
        assert download(NAME) == path
        with pytest.raises(OSError, match="cannot be saved in .*Permission denied.*Set KERAS_HOME to a folder"):
            download("vit/sam/ViT-B_16")
        os.chmod(home + "/keras_vit/vit", 0o755)


HUB_FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 8}


@pytest.fixture
def hub_server(monkeypatch, tmp_path):
    """A server with the addresses of the Hugging Face Hub and the repository a/b; `sent` replaces a file's bytes."""
    commit = "0123456789" * 4

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(body=True)

        def do_HEAD(self):
            self.answer(body=False)

        def answer(self, body):
            name, headers = self.path.split("?")[0].rpartition("/")[2], {}
            if self.path.startswith("/api/models/a/b/"):
                siblings = [{"rfilename": name} for name in HUB_FILES]
                needed = {"private": False, "disabled": False, "downloads": 0, "likes": 0}  # by huggingface_hub 0.23
                content = json.dumps({"id": "a/b", "sha": commit, "siblings": siblings, "tags": [], **needed}).encode()
                if "/tree/" in self.path:
                    content = json.dumps(
                        [{"type": "file", "path": n, "size": len(c), "oid": "0" * 40} for n, c in HUB_FILES.items()]
                    ).encode()
                headers["Content-Type"] = "application/json"
            elif name in HUB_FILES:
                content = self.server.sent.get(name, HUB_FILES[name])
                digest = hashlib.sha256(HUB_FILES[name]).hexdigest()
                headers = {"ETag": f'"{digest}"', "X-Repo-Commit": commit, "X-Linked-Size": str(len(content))}
            else:
                return self.send_error(404)
            self.send_response(200)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.sent = {}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_of_the_hub_are_held_against_its_sha256(hub_server):
    hub_server.sent["model.safetensors"] = HUB_FILES["model.safetensors"][:-1] + b"?"
    with pytest.raises(ConnectionError, match="model.safetensors of .*a/b has SHA-256 .* which the Hub states"):
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


@pytest.mark.parametrize(
    "name,repository,revision",
    [
        ("hf:google/vit-base-patch16-224", "google/vit-base-patch16-224", None),
        ("hf:timm/vit_base_patch16_224.augreg_in21k", "timm/vit_base_patch16_224.augreg_in21k", None),
        ("hf:facebook/deit-tiny@refs/pr/1", "facebook/deit-tiny", "refs/pr/1"),
    ],
)
def test_repositories_are_downloaded_to_a_folder(hub, tmp_path, name, repository, revision):
    assert download_hugging_face(name) == tmp_path
    patterns = ["config.json", "preprocessor_config.json", "open_clip_config.json"]
    patterns += ["*.safetensors", "*.safetensors.index.json"]
    assert hub.calls == [(repository, {"revision": revision, "allow_patterns": patterns})]


@pytest.mark.parametrize("name", ["hf:vit", "hf:a/b/c", "google/vit", "hf:google/", "hf:a/b@", "hf: a/b", "hf:a/b@x y"])
def test_malformed_hugging_face_names_raise(hub, name):
    with pytest.raises(ValueError, match='"hf:owner/name@revision".*Received'):
        download_hugging_face(name)
    assert not hub.calls


def test_pickled_weights_raise(hub):
    hub.files = ["config.json", "pytorch_model.bin"]
    with pytest.raises(
        ValueError, match="'hf:a/b' .https://huggingface.co/a/b. has no .safetensors.*pytorch_model.bin"
    ):
        download_hugging_face("hf:a/b")


def test_hugging_face_errors_have_the_address_and_the_cause(hub):
    hub.error = OSError("404 Client Error.")
    with pytest.raises(
        ConnectionError, match="could not be downloaded from https://huggingface.co/a/b: 404 Client Error. Check"
    ):
        download_hugging_face("hf:a/b")


def test_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="pip install huggingface_hub"):
        download_hugging_face("hf:a/b")


def test_huggingface_hub_offline(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match="https://huggingface.co/keras-vit/nowhere"):
        download_hugging_face("hf:keras-vit/nowhere")
