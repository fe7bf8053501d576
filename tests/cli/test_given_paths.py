"""Paths without a file are reported before TensorFlow is imported; names and existing paths pass."""

import pytest

from keras_vit.recipes.recipe import Run
from keras_vit_cli.given_paths import check_dataset_path, check_new_run, check_weights


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("runs/stopped/recipe.json", "model.npz", "bert/ckpt-1.index", "photos/cat/1.jpg", "a.tfrecord"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()


@pytest.mark.parametrize(
    "weights",
    [None, "model.npz", "bert/ckpt-1", "./bert/ckpt-1", "vit/imagenet21k/ViT-B_16.npz", "hf:a/b.npz"]
    + ["gs://bucket/x.npz", "cifar10/R6_Ti_4", "/", "runs/stopped"],
)
def test_weights_that_may_exist(weights):
    check_weights(weights)


@pytest.mark.parametrize(
    "weights,message",
    [
        ("other.npz", "no weights file or folder .*/other.npz. To load by name"),
        ("nope/model.keras", "no weights file or folder .*/nope/model.keras. The folder nope does not exist.$"),
        ("photos/model.keras", "no weights file or folder .*/photos/model.keras. To load by name"),
        ("google/vit", "no weights file or folder .*/google/vit. For the Hugging Face Hub pass 'hf:google/vit'"),
        ("nothere", "no weights file or folder .*/nothere"),
        ("deit_tiny_patch16_224.safetensors", "pass 'hf:timm/deit_tiny_patch16_224' with the tag"),
        ("./google/vit", "no weights file or folder .*/google/vit. The folder google does not exist.$"),
        ("runs/x", "no weights file or folder .*/runs/x.$"),
        ("runs/stopped/model.keras", "runs/stopped has not finished.* train runs/stopped --run.folder runs/stopped"),
    ],
)
def test_weights_that_do_not_exist(weights, message):
    with pytest.raises(FileNotFoundError, match=message):
        check_weights(weights)


@pytest.mark.parametrize(
    "dataset", ["digits", "folder:photos", "tfrecord:*.tfrecord", "tfrecord:gs://b/x", "hf:owner/name", "vtab/dtd"]
)
def test_datasets_that_may_exist(dataset):
    check_dataset_path(dataset)


@pytest.mark.parametrize(
    "dataset,message",
    [
        ("folder:gone", "There is no folder 'gone'. Expected a folder with <class>/<image>"),
        ("folder:photos/cat/1.jpg", "'photos/cat/1.jpg' is a file. Expected"),
        ("folder:runs", "runs is not laid out as .*; there are none.$"),
        ("csv:/gone", "There is no folder '/gone'"),
        ("hf:./gone", "There is no folder './gone'"),
        ("tfrecord:gone", "no TFRecord files at gone"),
        ("./photos", "Use data.dataset='folder:./photos'"),
    ],
)
def test_datasets_that_do_not_exist(dataset, message):
    with pytest.raises(ValueError, match=message):
        check_dataset_path(dataset)


def test_a_folder_with_a_run(tmp_path):
    for file in ("old/metrics.json", "cut/step-3.index"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
        folder = file.partition("/")[0]
        with pytest.raises(ValueError, match=f"{folder} already contains a run"):
            check_new_run(Run(folder=folder))
        check_new_run(Run(folder=folder, resume=True))
    for folder in ("gone", "runs/stopped", "gs://bucket/x", None):
        check_new_run(Run(folder=folder))
