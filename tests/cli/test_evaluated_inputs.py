"""Mistakes in WEIGHTS and DATASET are reported before a model is loaded."""

import pytest

from keras_vit_cli.evaluated_inputs import check_model_and_dataset


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in (
        "my-photos/1/1.jpg",
        "photos/cat/1.jpg",
        "cifar100/1/1.jpg",
        "m.npz",
        "run/model.keras",
        "m.tflite",
        "s/saved_model.pb",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()


@pytest.mark.parametrize("weights", ["m.npz", "run", "cifar10/R6_Ti_4", "vit/imagenet21k/ViT-B_16", "hf:a/b"])
@pytest.mark.parametrize("dataset", ["digits", "cifar10/3.0.2", "folder:photos", "hf:a/b", "vtab/dtd", "cifar100"])
def test_what_may_be_right_passes(weights, dataset):
    check_model_and_dataset(weights, dataset)


@pytest.mark.parametrize(
    "weights,dataset,message",
    [
        ("photos", "cifar10/R6_Ti_4", "Swap them: weights cifar10/R6_Ti_4, dataset folder:photos$"),
        ("digits", "run", "Swap them: weights run, dataset digits$"),
        ("folder:photos", "hf:a/b", "Swap them: weights hf:a/b, dataset folder:photos$"),
        ("cifar10", "gone.npz", "Swap them: weights gone.npz, dataset cifar10$"),
        ("m.npz", "./photos", "'./photos' is a folder. Did you mean folder:./photos?"),
        ("m.npz", "my-photos", "'my-photos' is a folder. Did you mean folder:my-photos?"),
        ("m.npz", "photos", "'photos' is a folder. Did you mean folder:photos?"),
        ("m.npz", "/gone", "Received: '/gone'. Use 'folder:/gone'"),
        ("m.npz", "folder:gone", "There is no folder 'gone'"),
        ("gone.npz", "digits", "There is no weights file or folder .*gone.npz"),
    ],
)
def test_mistakes(weights, dataset, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        check_model_and_dataset(weights, dataset)


@pytest.mark.parametrize(
    "command,message",
    [
        (("evaluate", "m.tflite", "--dataset", "folder:photos"), "keras-vit export WEIGHTS --dataset folder:photos"),
        (("probe", "s", "photos"), "the exported s. keras-vit export WEIGHTS --dataset folder:photos"),
        (("few-shot", "m.tflite", "digits"), "keras-vit classify IMAGES --model m.tflite prints the answers"),
        (("inspect", "m.tflite", "--images", "photos", "--output", "x.html"), "keras-vit export m.tflite --describe"),
        (("describe", "m.tflite"), "keras-vit export m.tflite --describe"),
        (("export", "m.tflite", "--output", "new"), "Pass the weights that it was exported from, or --describe"),
        (("export", "m.npz", "--dataset", "./photos", "--output", "new"), "Did you mean folder:./photos?"),
        (("classify", "photos/cat/1.jpg", "--model", "gone.keras"), "There is no weights file or folder"),
        (("few-shot", "m.npz", "digits", "--shots", "0"), "--shots must be one or more integers of at least 1"),
        (("few-shot", "m.npz", "digits", "--seeds"), "--seeds is empty"),
        (("few-shot", "m.npz", "digits", "--l2", "0"), "--l2 must be a finite number above 0. Received: 0.0"),
    ],
)
def test_commands_check_before_loading(command, message, run_cli, monkeypatch):
    monkeypatch.setattr("keras_vit.load", lambda *_, **__: pytest.fail("the model was loaded"))
    status, output, errors = run_cli(*command)
    assert status == 1 and not output and errors.startswith("keras-vit: ") and message in errors, errors
