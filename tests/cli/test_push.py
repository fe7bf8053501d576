"""`keras-vit convert --push` against a server with the addresses of the Hugging Face Hub."""

import base64
import http.server
import json
import threading

import numpy as np
import pytest
from goldens import golden_file, golden_io
from huggingface_hub import constants

import keras_vit


@pytest.fixture
def hub(monkeypatch):
    """The server: `created` has the names of new repositories, `commits` the files of each commit by name."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Authorization"] != "Bearer hf_token":
                return self.answer({"error": "Invalid username or password."}, 401)
            path = self.path.partition("?")[0]
            if path == "/api/repos/create":
                self.server.created.append(json.loads(body)["name"])
                return self.answer({"url": f"{constants.ENDPOINT}/owner/name", "name": "owner/name"})
            if path == "/api/validate-yaml":
                return self.answer({"errors": [], "warnings": []})
            if path == "/api/models/owner/name/preupload/main":
                modes = [{"uploadMode": "regular", "shouldIgnore": False} | file for file in json.loads(body)["files"]]
                return self.answer({"files": modes})
            if path == "/api/models/owner/name/commit/main":
                lines = [json.loads(line) for line in body.splitlines()]
                files = [line["value"] for line in lines if line["key"] == "file"]
                self.server.commits.append({file["path"]: base64.b64decode(file["content"]) for file in files})
                return self.answer({"commitUrl": f"{constants.ENDPOINT}/owner/name/commit/0", "commitOid": "0" * 40})
            self.send_error(404)

        def answer(self, value, status=200):
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.created, server.commits = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_is_uploaded_with_its_card_and_loads_again(run_cli, hub, tmp_path):
    io, folder = golden_io("hf_vit"), tmp_path / "converted"
    file = golden_file(tmp_path, "hf_vit")
    status, output, errors = run_cli("convert", file, folder, "--num-heads", 3, "--push", "owner/name")
    assert status == 0, errors
    assert output.splitlines()[-1] == f"Uploaded to {constants.ENDPOINT}/owner/name"
    assert hub.created == ["name"]
    (files,) = hub.commits
    assert files.pop("README.md") == (folder / "model_card.md").read_bytes()
    assert files == {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "model_card.md"}
    uploaded = tmp_path / "uploaded"
    uploaded.mkdir()
    for name, content in files.items():
        (uploaded / name).write_bytes(content)
    np.testing.assert_allclose(keras_vit.load(uploaded)(io["images"]), io["logits"], atol=1e-4)


def test_a_refused_upload_leaves_the_files(run_cli, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    file, output = golden_file(tmp_path, "hf_vit"), tmp_path / "x.keras"
    status, _, errors = run_cli("convert", file, output, "--num-heads", 3, "--push", "owner/name")
    assert status == 1 and "'owner/name'" in errors and "HF_TOKEN" in errors and output.exists() and not hub.commits


def test_a_push_without_a_login_writes_nothing(run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    options = golden_file(tmp_path, "hf_vit"), tmp_path / "x.keras", "--push", "owner/name"
    status, _, errors = run_cli("convert", *options)
    assert status == 1 and "HF_TOKEN" in errors and not (tmp_path / "x.keras").exists()
