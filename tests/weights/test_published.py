import http.server
import io
import os
import socket
import threading

import numpy as np
import pytest

from keras_vit.weights import augreg, published
from keras_vit.weights import downloads as cache
from keras_vit.weights.downloads import cache_path, download
from keras_vit.weights.published import FOLDERS, published_names, resolve

NAME = "vit/imagenet21k/R50+ViT-B_16"


@pytest.mark.parametrize(
    "name,path",
    [
        (f"augreg/{augreg.EXAMPLE}", f"vit_models/augreg/{augreg.EXAMPLE}.npz"),
        (f"augreg/{augreg.EXAMPLE_TUNED}", f"vit_models/augreg/{augreg.EXAMPLE_TUNED}.npz"),
        ("vit/imagenet21k/ViT-B_16", "vit_models/imagenet21k/ViT-B_16.npz"),
        ("vit/imagenet21k/ViT-B_16.npz", "vit_models/imagenet21k/ViT-B_16.npz"),
        (
            "vit/imagenet21k+imagenet2012/R50+ViT-B_16",
            "vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
        ),
        ("vit/gsam/ViT-S_32", "vit_models/gsam/ViT-S_32.npz"),
        ("big_vision/vit_s16_i1k_90ep", "big_vision/vit_s16_i1k_90ep.npz"),
        ("big_vision/flexivit/vit_b30_i21k_300ep", "big_vision/flexivit/vit_b30_i21k_300ep.npz"),
        ("bit/BiT-M-R50x1-ILSVRC2012", "bit_models/BiT-M-R50x1-ILSVRC2012.npz"),
        ("bit/distill/R50x1_224", "bit_models/distill/R50x1_224.npz"),
    ],
)
def test_names_become_addresses(name, path):
    assert resolve(name) == f"https://storage.googleapis.com/{path}"


def test_all_names_resolve_and_differ():
    names = published_names()
    assert (
        len({resolve(name) for name in names})
        == len(set(names))
        == len(names)
        == sum(len(folder.names) for folder in FOLDERS)
    )
    assert len({cache_path(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["B_16.npz", "runs/model.npz", "hf:google/vit-base-patch16-224", "vit", "/bit/x", ""])
def test_other_strings_are_left_to_others(name):
    assert resolve(name) is None


@pytest.mark.parametrize(
    "name,nearest",
    [
        ("vit/imagenet21k/ViT-B16", "vit/imagenet21k/ViT-B_16"),
        ("vit/ViT-L_32", "vit/sam/ViT-L_32"),
        ("bit/BiT-M-R50x2", "bit/BiT-M-R50x1"),
        ("big_vision/vit_s16_i1k_300", "big_vision/vit_s16_i1k_300ep"),
    ],
)
def test_an_unknown_name_gets_suggestions(name, nearest):
    with pytest.raises(ValueError, match=f"no published checkpoint '{name}'.*The nearest: .*{nearest}"):
        resolve(name)


@pytest.mark.parametrize(
    "change,message",
    [
        (("aug_medium1", "aug_light2"), "augmentation of .* is 'aug_light2', expected one of aug_none, aug_light0"),
        (("wd_0.1", "wd_0.2"), "weight decay of .* is 'wd_0.2'.*Did you mean wd_0"),
        (("B_16", "B/16"), "model of .* is 'B/16'.*Did you mean B_16"),
        (("-sd_0.0", ""), "has 7 parts .* 8 were expected: model, data set, epochs"),
        (("imagenet2012", "imagenet"), "data set of 'imagenet-steps_20k.* is 'imagenet'.*Did you mean imagenet2012"),
        (("-res_384", ""), "has 3 parts .* 4 were expected: data set, steps"),
        (("-res", "--res"), "2 double dashes"),
    ],
)
def test_a_malformed_augreg_name_gets_an_example(change, message):
    with pytest.raises(ValueError, match=message) as error:
        resolve("augreg/" + augreg.EXAMPLE_TUNED.replace(*change))
    assert f"augreg/{augreg.EXAMPLE_TUNED}" in str(error.value)


def test_augreg_files_beyond_the_recommended_resolve():
    name = "augreg/R_Ti_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.03-do_0.1-sd_0.1--kitti-steps_0k-lr_0.003-res_224"
    assert name not in published_names() and resolve(name).endswith("--kitti-steps_0k-lr_0.003-res_224.npz")


def npz():
    file = io.BytesIO()
    np.savez(file, weights=np.random.default_rng(0).standard_normal((100, 100)).astype("float32"))
    return file.getvalue()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A storage on this machine and an empty cache. `server.answer` is (status, declared length or None, body)."""

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


def test_a_file_is_downloaded_once(server, tmp_path):
    path = download(NAME)
    assert path == cache_path(NAME) == tmp_path / "home/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    assert path.read_bytes() == npz() and files(tmp_path) == [path]
    assert server.requests == ["/vit_models/imagenet21k/R50%2BViT-B_16.npz"]
    assert download(NAME + ".npz") == path and len(server.requests) == 1


@pytest.mark.parametrize(
    "answer,reason",
    [
        ((200, len(npz()), npz()[:20000]), "got only 20000 out of"),
        ((200, None, npz()[:20000]), "not a whole .npz file"),
        ((200, len(npz()), npz()[:20000] + b"?" + npz()[20001:]), "not a whole .npz file"),
        ((200, 14, b"<html> hello </"), "not a whole .npz file"),
        ((503, 0, b""), "503"),
    ],
    ids=["closed early", "closed early, length unknown", "changed on the way", "a web page", "overloaded"],
)
def test_a_download_that_broke_off_leaves_nothing_behind(server, tmp_path, answer, reason):
    whole, server.answer = server.answer, answer
    with pytest.raises(ConnectionError) as error:
        download(NAME)
    address = f"{published.STORAGE}/vit_models/imagenet21k/R50%2BViT-B_16.npz"
    assert all(part in str(error.value) for part in (reason, address, f"put it at {cache_path(NAME)}"))
    assert not files(tmp_path)
    server.answer = whole
    assert download(NAME).read_bytes() == npz()


@pytest.mark.parametrize("status", [403, 404])
def test_a_file_that_the_server_lacks(server, tmp_path, status):
    server.answer = (status, 0, b"")
    with pytest.raises(FileNotFoundError, match=f"no public file at {published.STORAGE}/vit_models/.*{status}"):
        download(NAME)
    assert not files(tmp_path)


def test_without_a_network_the_path_for_a_file_by_hand_is_named(server, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(published, "STORAGE", f"http://127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(ConnectionError, match=f"{published.STORAGE}/vit_models/imagenet21k") as error:
        download("vit/imagenet21k/ViT-B_16")
    path = cache_path("vit/imagenet21k/ViT-B_16")
    assert str(path) in str(error.value)
    path.write_bytes(npz())
    assert download("vit/imagenet21k/ViT-B_16") == path


def test_an_interrupted_download_is_removed(server, tmp_path, monkeypatch):
    def interrupted(name, address, cache_subdir):
        with open(os.path.join(cache_subdir, name), "wb") as file:
            file.write(npz()[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.keras.utils, "get_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(NAME)
    assert not files(tmp_path)


def test_leftovers_of_killed_processes_go_and_live_downloads_stay(server, tmp_path):
    folder = cache_path(NAME).parent
    folder.mkdir(parents=True)
    killed, live = folder / "R50+ViT-B_16.npz.0a.part", folder / "R50+ViT-B_16.npz.0b.part"
    for file in (killed, live):
        file.write_bytes(b"PK")
    os.utime(killed, (0, 0))
    assert sorted(files(tmp_path / "home")) == sorted([killed, live])
    path = download(NAME)
    assert sorted(files(tmp_path / "home")) == sorted([live, path])


def test_the_default_cache_is_that_of_keras(monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    assert cache_path("bit/BiT-S-R50x1") == cache_path("bit/BiT-S-R50x1.npz")
    assert str(cache_path("bit/BiT-S-R50x1")) == os.path.expanduser("~/.keras/keras_vit/bit/BiT-S-R50x1.npz")


def test_only_published_names_are_downloaded():
    with pytest.raises(
        ValueError, match="'B_16.npz' is not the name of a published checkpoint; these begin with augreg/"
    ):
        download("B_16.npz")


def test_a_cache_that_is_not_absolute_is_below_the_working_folder(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", "here")
    assert download(NAME) == tmp_path / "here/keras_vit/vit/imagenet21k/R50+ViT-B_16.npz"
    assert files(tmp_path) == [download(NAME)]
