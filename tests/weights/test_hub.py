import sys
import types

import pytest
from huggingface_hub import constants

from keras_vit.weights.hub import download_hf


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A huggingface_hub whose repositories hold `hub.files`; it records its calls, and raises `hub.error` if set."""
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
def test_a_repository_becomes_a_folder(hub, tmp_path, name, repository, revision):
    assert download_hf(name) == tmp_path
    patterns = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json"]
    assert hub.calls == [(repository, {"revision": revision, "allow_patterns": patterns})]


@pytest.mark.parametrize("name", ["hf:vit", "hf:a/b/c", "google/vit", "hf:google/", "hf:a/b@", "hf: a/b", "hf:a/b@x y"])
def test_names_are_checked(hub, name):
    with pytest.raises(ValueError, match='"hf:owner/name@revision".*Received'):
        download_hf(name)
    assert not hub.calls


def test_pickled_weights_are_refused(hub):
    hub.files = ["config.json", "pytorch_model.bin"]
    with pytest.raises(
        ValueError, match="'hf:a/b' .https://huggingface.co/a/b. has no .safetensors.*pytorch_model.bin"
    ):
        download_hf("hf:a/b")


def test_failures_name_the_address_and_the_cause(hub):
    hub.error = OSError("404 Client Error.")
    with pytest.raises(ConnectionError, match="cannot be had from https://huggingface.co/a/b: 404 Client Error. Check"):
        download_hf("hf:a/b")


def test_without_huggingface_hub_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="pip install huggingface_hub"):
        download_hf("hf:a/b")


def test_the_real_hub_offline(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match="https://huggingface.co/keras-vit/nowhere"):
        download_hf("hf:keras-vit/nowhere")
