"""Conversions between formats, and uploads to a server with the addresses of the Hugging Face Hub."""

import base64
import http.server
import json
import threading

import numpy as np
import pytest
from goldens import golden_file, golden_io
from huggingface_hub import constants

import keras_vit


def test_outputs_are_preserved(run_cli, tmp_path):
    io = golden_io("hf_deit")
    status, output, _ = run_cli("convert", golden_file(tmp_path, "hf_deit"), tmp_path / "x.keras", "--num-heads", 3)
    assert status == 0 and output.startswith(f"Wrote {tmp_path / 'x.keras'} (")
    assert run_cli("convert", tmp_path / "x.keras", tmp_path / "deit")[1].count("Wrote") == 4
    assert "x.keras" in (tmp_path / "deit" / "model_card.md").read_text()
    assert "num_heads=3" in (tmp_path / "x.keras.model_card.md").read_text()
    for file in (tmp_path / "x.keras", tmp_path / "deit"):
        np.testing.assert_allclose(keras_vit.load(file)(io["images"]), io["logits"], atol=1e-4)


def test_mean_and_std_of_a_file_that_has_none(run_cli, tmp_path):
    file, values = golden_file(tmp_path, "timm_token"), ("0.4", "0.5", "0.6")
    options = ("--num-heads", 3, "--mean", *values, "--std", 0.2, 0.25, 0.3)
    status, _, notes = run_cli("convert", file, tmp_path / "x.keras", *options)
    assert status == 0 and not notes
    model = keras_vit.load(tmp_path / "x.keras")
    assert (model.preprocessing.mean, model.preprocessing.std) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    pixels = model.preprocess(np.full((64, 64, 3), 102, "uint8"))
    np.testing.assert_allclose(pixels[0, 0, 0], [0, -0.4, -2 / 3], atol=1e-5)
    io = golden_io("timm_token")
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)
    assert "mean=(0.4, 0.5, 0.6)" in (tmp_path / "x.keras.model_card.md").read_text()


@pytest.mark.parametrize("name", ["x.keras", "x.npz", "x.safetensors"])
def test_half_precision(run_cli, tmp_path, name):
    file, io = golden_file(tmp_path, "vit_jax_token"), golden_io("vit_jax_token")
    assert run_cli("convert", file, tmp_path / "full" / name)[0] == 0
    assert run_cli("convert", file, tmp_path / name, "--dtype", "float16")[0] == 0
    assert (tmp_path / name).stat().st_size < 0.75 * (tmp_path / "full" / name).stat().st_size  # the toy has long names
    model = keras_vit.load(tmp_path / name, dtype="float32")
    assert {weight.dtype for weight in model.weights} == {"float32"}
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=5e-3)


def test_new_image_size_without_head(run_cli, tmp_path):
    file = golden_file(tmp_path, "vit_jax_token")
    assert run_cli("convert", file, tmp_path / "x.npz", "--image-size", 96, "--num-classes", 0)[0] == 0
    model = keras_vit.load(tmp_path / "x.npz")
    assert model.image_size == (96, 96) and model.num_classes == 0
    expected = keras_vit.load(file, image_size=96, num_classes=0)
    np.testing.assert_array_equal(model.positions.table, expected.positions.table)


def test_class_names_and_cards_stay_with_each_format(run_cli, trained_toy, tmp_path):
    run, folder = tmp_path / "run", tmp_path / "converted"
    run.mkdir()
    trained_toy(num_classes=3).save(run / "model.keras")
    (run / "labels.txt").write_text("ant\nbee\ncat\n")
    for name in ("x.keras", "x.npz", "hf"):
        assert run_cli("convert", run, folder / name)[0] == 0  # formats in one folder do not collide
    files = {f"{name}{end}" for name in ("x.keras", "x.npz") for end in ("", ".model_card.md", ".labels.txt")}
    assert {file.name for file in folder.iterdir()} == files | {"hf"}
    for file in ("x.keras.labels.txt", "x.npz.labels.txt", "hf/labels.txt"):
        assert (folder / file).read_text() == "ant\nbee\ncat\n"
    config = json.loads((folder / "hf" / "config.json").read_text())
    assert config["id2label"] == {"0": "ant", "1": "bee", "2": "cat"} and config["label2id"]["cat"] == 2
    assert run_cli("convert", folder / "x.npz", tmp_path / "again.keras", "--gelu", "tanh")[0] == 0
    assert (tmp_path / "again.keras.labels.txt").read_text() == "ant\nbee\ncat\n"
    # A head of other classes has no names, and those of the replaced file are removed.
    assert run_cli("convert", run, folder / "x.npz", "--num-classes", 7, "--overwrite")[0] == 0
    assert not (folder / "x.npz.labels.txt").exists() and (run / "labels.txt").exists()


@pytest.mark.parametrize("name", ["config.json", "labels.txt", "model_card.md", "preprocessor_config.json"])
def test_files_beside_the_weights_are_not_overwritten(run_cli, tmp_path, no_load, name):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / name).write_text("mine")
    status, _, errors = run_cli("convert", golden_file(tmp_path, "hf_vit"), tmp_path / "hf")
    assert status == 1 and f"{tmp_path / 'hf' / name} already exists" in errors and "--overwrite" in errors
    assert (tmp_path / "hf" / name).read_text() == "mine"


@pytest.mark.parametrize(
    "golden,output,options,word",
    [
        ("hf_vit", "y.npz", ("--num-heads", 3), "gelu='erf'"),
        ("hf_vit", "y.keras", (), "num_heads="),
        ("big_vision_bit_v1", "y.npz", (), "VisionTransformer"),
    ],
)
def test_errors_leave_no_files(run_cli, tmp_path, golden, output, options, word):
    file = golden_file(tmp_path, golden)
    before = sorted(tmp_path.iterdir())
    status, text, errors = run_cli("convert", file, tmp_path / output, *options)
    assert (status, text) == (1, "") and word in errors.splitlines()[-1] and sorted(tmp_path.iterdir()) == before


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
