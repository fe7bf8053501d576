"""`keras-vit export` on small models."""

import errno
import json
import re
import shutil

import numpy as np
import pytest
from scenes import encoded, scene

import keras_vit
from keras_vit.export import read_description
from keras_vit.recipes.data import decoded_images
from keras_vit_cli.export.command import Export
from keras_vit_cli.export.data import ExportData
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """File of an untrained model for digits."""
    path = tmp_path_factory.mktemp("model") / "digits.keras"
    sizes = {"image_size": 8, "patch_size": 2, "depth": 1, "width": 32, "mlp_dim": 64, "num_heads": 2}
    model = keras_vit.VisionTransformer(**sizes, num_classes=10)
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    model.save(path)
    return str(path)


INT8 = ["--dataset", "digits", "--formats", "int8"]
FEW_IMAGES = ["--check-images", "40", "--calibration-images", "20", "--max-accuracy-drop", "100"]


def test_saved_model_web_and_tflite(model, tmp_path, capsys):
    formats = ["saved-model", "web", "int8"]
    arguments = ["export", model, "--output", str(tmp_path / "out"), "--dataset", "digits", "--formats", *formats]
    assert main([*arguments, *FEW_IMAGES, "--target", "litert2", "--license", "CC0-1.0"]) == 0
    output = capsys.readouterr().out
    assert "40 images of digits (test)" in output and "litert2: fully delegated" in output
    row = next(line for line in output.splitlines() if line.startswith("| saved-model"))
    assert "+0.00 | 100.00% | 1.0000" in row
    assert {path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".json"} == {
        "saved_model",
        "web",
        "model-int8.tflite",
    }
    assert main(["export", str(tmp_path / "out" / "model-int8.tflite"), "--describe"]) == 0
    described = capsys.readouterr().out
    assert "classify" in described and "uint8" in described
    page = tmp_path / "out" / "web"
    assert output.endswith(f"\n{page / 'index.html'} is the page: python3 -m http.server --directory {page}\n")
    assert (page / "index.html").is_file()
    assert "\n| web |" in output and "\nweb/model.tflite: " in output  # compared and audited, too
    described = read_description(tmp_path / "out" / "web" / "model.tflite")
    assert described.description.license == "CC0-1.0"
    page = json.loads((tmp_path / "out" / "web" / "settings.json").read_text())
    assert page["class_names"] == [str(digit) for digit in range(10)]


def test_accuracy_drop_above_the_limit_is_not_saved(model, tmp_path, capsys):
    arguments = ["export", model, "--output", str(tmp_path / "out"), "--dataset", "digits", "--formats", "float32"]
    assert main([*arguments, *FEW_IMAGES, "--max-accuracy-drop", "-1"]) == 1
    captured = capsys.readouterr()
    assert "float32 has an accuracy drop of 0.00 percentage points, above -1.0. Nothing was saved" in captured.err
    row = next(line for line in captured.out.splitlines() if line.startswith("| float32"))
    assert "+0.00 | 100.00% | 1.0000" in row
    assert not list(tmp_path.iterdir())
    assert main([*arguments, *FEW_IMAGES, "--max-accuracy-drop", "-1", "--keep-going"]) == 1
    assert f"Written to {tmp_path / 'out'}" in capsys.readouterr().out
    assert (tmp_path / "out" / "model-float32.tflite").is_file()


def test_unknown_target_is_reported_before_the_model_is_loaded(tmp_path, capsys):
    for target, message in (("tpu", "the NPU of a chip, such as npu:SM8750"), ("npu:SM8751", "meant SM8750")):
        assert main(["export", "cifar10/R6_Ti_4", "--output", str(tmp_path / "out"), "--target", target]) == 1
        assert message in capsys.readouterr().err


def test_unsupported_target_is_not_saved(model, tmp_path, capsys):
    arguments = ["export", model, "--output", str(tmp_path / "out"), "--formats", "float32", "--target", "edgetpu"]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "Nothing was saved; --keep-going saves the files anyway.\n" in captured.err
    assert "edgetpu does not support float32" in captured.err and "Not compared" in captured.out
    assert not list(tmp_path.iterdir())
    assert main([*arguments[:-1], "nnapi-npu", "--formats", "float32", "saved-model"]) == 1
    assert "--keep-going saves the files anyway, --formats saved-model only those" in capsys.readouterr().err


def test_target_requires_a_tflite_file(model, tmp_path, capsys):
    arguments = ["export", model, "--output", str(tmp_path / "out"), "--formats", "saved-model", "--target", "gpu"]
    assert main(arguments) == 1
    assert "--target examines .tflite files. Add one to --formats" in capsys.readouterr().err


def test_int4_of_few_images_is_not_calibrated(model, tmp_path, capsys):
    arguments = ["export", model, "--output", str(tmp_path / "out"), "--dataset", "digits", "--formats", "int4-weights"]
    assert main([*arguments, "--check-images", "5", "--calibration-images", "5"]) == 1
    assert "--calibration-images 20. Received: 5 and 5" in capsys.readouterr().err
    few = ["--check-images", "5", "--calibration-split", "train[:10]", "--max-accuracy-drop", "100"]
    assert main([*arguments, *few]) == 0
    printed = capsys.readouterr().out
    assert "int4-weights is not calibrated: 'train[:10]' has 10 images, fewer than 20." in printed
    assert (tmp_path / "out" / "model-int4-weights.tflite").is_file()


def test_model_without_a_head_gets_no_class_names(tmp_path, capsys):
    sizes = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 12, "num_heads": 2}
    keras_vit.VisionTransformer(**sizes, num_classes=0).save(tmp_path / "model.keras")
    arguments = ["export", str(tmp_path / "model.keras"), "--output", str(tmp_path / "out"), "--dataset", "digits"]
    assert main([*arguments, "--formats", "int8", "--calibration-images", "20"]) == 1
    assert "has no head to classify with. Pass --signatures embed." in capsys.readouterr().err
    assert main([*arguments, "--formats", "saved-model", "--check-images", "1"]) == 0
    assert "Not compared with Keras: requires --dataset, a model with classes" in capsys.readouterr().out


def test_web_page_requires_a_head(tmp_path, capsys):
    sizes = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 12, "num_heads": 2}
    keras_vit.VisionTransformer(**sizes, num_classes=0).save(tmp_path / "model.keras")
    arguments = ["export", str(tmp_path / "model.keras"), "--output", str(tmp_path / "out"), "--formats", "web"]
    assert main(arguments) == 1
    assert "A web page shows classes, but the model has no head. Omit the format web." in capsys.readouterr().err


@pytest.mark.parametrize("formats,splits", [(("float32",), ["test"]), (("float32", "int8"), ["test", "train"])])
def test_only_required_images_are_decoded(model, data_dir, monkeypatch, formats, splits):
    requests = []

    def decoded(dataset, split, batch_size, max_corrupt=None, indices=None):
        requests.append((split, indices))
        return decoded_images(dataset, split, batch_size, max_corrupt, indices)

    monkeypatch.setattr("keras_vit.recipes.data.decoded_images", decoded)
    monkeypatch.setattr("keras_vit_cli.export.data.CALIBRATION_POOL", 100)
    options = Export(model, None, formats, "digits", data_dir, calibration_images=20, check_images=5)
    data = ExportData.read(options, keras_vit.load(model))
    assert [split for split, _ in requests] == splits and len(data.images) == 5
    if "int8" in formats:
        indices = requests[1][1]
        assert len(set(indices)) == 20 and max(indices) < 100 and data.calibration.shape == (20, 8, 8, 3)
    else:
        assert data.calibration is None


@pytest.mark.parametrize(
    "options,notes",
    [
        ({"calibration_images": 20, "calibration_split": "test[20:]"}, []),
        (
            {"calibration_images": 200, "calibration_split": "test[10:40]"},
            ["30 calibration images in place of --calibration-images 200: 'test[10:40]'", "10 of the 30 calibration"],
        ),
    ],
)
def test_few_or_shared_calibration_images_are_noted(model, data_dir, options, notes):
    options = Export(model, None, ("int8",), "digits", data_dir, check_images=20, **options)
    found = ExportData.read(options, keras_vit.load(model)).notes
    assert [note in text for note, text in zip(notes, found, strict=True)] == [True] * len(notes)


def test_sensitivity(model, capsys):
    assert main(["export", model, "--dataset", "digits", "--formats", "int8", "--sensitivity", *FEW_IMAGES]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line.split("|")[1:3] for line in printed if line.startswith("| ")][1:]
    names = [name.strip() for name, _ in lines]
    assert set(names[:4]) == {"block_0/attention", "block_0/mlp", "head", "all else"}
    assert names[4:] == ["all", f"all but {names[0]}"]
    cosines = [float(cosine) for _, cosine in lines[:4]]
    assert cosines == sorted(cosines) and 0.5 < cosines[0] < 1
    assert printed[-1].startswith(f"{names[0]} causes ") and "mixed-int8" in printed[-1]


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "--output FOLDER"),
        (["--output", "OUT", "--formats", "int8"], "int8: calibration requires images. Pass --dataset"),
        (["--output", "OUT", "--formats"], "No formats. Pass --formats"),
        (["--output", "OUT", "--dataset", "digits", "--check-images", "0"], "--check-images must be at least 1"),
        (
            ["--output", "OUT", "--dataset", "digits", "--formats", "int8", "--calibration-images", "5"],
            "--calibration-images 20. Received: 1000 and 5",
        ),
        (["--output", "OUT", "--dataset", "digits", "--split", "nope"], "No split 'nope'"),
        (
            ["--output", "OUT", *INT8, "--keep-float", "block_7/mlp"],
            "block_0/mlp, head, all else. Received: block_7/mlp",
        ),
        (
            ["--output", "OUT", "--keep-float", "head"],
            "--keep-float requires --formats among mixed-int8, int8, int16x8",
        ),
        (["--output", "OUT", "--max-accuracy-drop", "nan"], "--max-accuracy-drop must be finite. Received: nan"),
        (
            [*INT8, "--sensitivity", "--output", "OUT", "--keep-float", "head"],
            "quantizes all parts: omit --output, --keep-float.",
        ),
        ([*INT8, "--sensitivity", "--target", "litert2"], "quantizes all parts: omit --target."),
        (["--output", "OUT", "--dataset", "folder:TWO"], "has 2 classes, but the model has 10"),
        (["--output", "OUT", "--dataset", "folder:EMPTIED"], "cannot be decoded"),
        (["--output", "OUT", "--class-names", "BINARY"], "is not UTF-8 text"),
        (["--output", "OUT", "--class-names", "THREE"], "each of the 10 classes. Received: 3 names"),
        (["--output", "OUT", "--class-names", "EMPTY"], "is empty. Expected one class name per line"),
        (["--output", "OUT", "--class-names", "NONE"], "no file of class names"),
        (["--output", "FULL"], "is not empty"),
        (["--output", "OUT", "--dataset", "folder:/nowhere"], "nowhere"),
        (["--sensitivity"], "--sensitivity requires --dataset"),
    ],
)
def test_invalid_arguments(model, tmp_path, capsys, arguments, message):
    (tmp_path / "THREE").write_text("a\nb\nc\n")
    (tmp_path / "EMPTY").touch()
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe")
    for folder, classes in (("TWO", 2), ("EMPTIED", 10)):
        for number in range(2 * classes):
            place = tmp_path / folder / ("train", "test")[number % 2] / f"class {number // 2}"
            place.mkdir(parents=True)
            content = encoded(scene(number), "PNG") if folder == "TWO" else b""
            (place / "0.png").write_bytes(content)
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "mine").touch()
    places = [re.sub("[A-Z]{3,}", lambda name: str(tmp_path / name[0]), word) for word in arguments]
    assert main(["export", model, *places]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists() and not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_full_disk_leaves_nothing(model, tmp_path, capsys, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("keras_vit.export.tflite.convert.write_file", full)
    assert main(["export", model, "--output", str(tmp_path / "out"), "--formats", "float32"]) == 1
    assert f"No space is left on the disk: {tmp_path / 'out'}. Free" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_onnx_with_class_names(model, tmp_path):
    import onnx

    (tmp_path / "labels.txt").write_text("\n".join(f"number {i}" for i in range(10)))
    names = ["--class-names", str(tmp_path / "labels.txt")]
    assert main(["export", model, "--output", str(tmp_path / "out"), "--formats", "onnx", *names]) == 0
    properties = {entry.key: entry.value for entry in onnx.load(tmp_path / "out" / "model.onnx").metadata_props}
    assert properties["class_names"].splitlines() == [f"number {i}" for i in range(10)]


def test_describe_requires_a_tflite_file(tmp_path, capsys):
    (tmp_path / "empty.tflite").touch()
    assert main(["export", str(tmp_path / "empty.tflite"), "--describe"]) == 1
    assert "zero bytes" in capsys.readouterr().err


def test_class_names_are_those_of_the_run(model, tmp_path):
    """Without a dataset; with one they must be equal; a file in the options replaces both."""
    run, loaded = tmp_path / "run", keras_vit.load(model)
    run.mkdir()
    shutil.copy(model, run / "model.keras")
    names = [f"digit {i}" for i in range(10)]
    (run / "labels.txt").write_text("".join(f"{name}\n" for name in names))
    assert ExportData.read(Export(str(run)), keras_vit.load(run)).class_names == tuple(names)
    assert ExportData.read(Export(model), loaded).class_names is None
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{i}\n" for i in range(10)))
    assert ExportData.read(Export(str(run), class_names=other), loaded).class_names[3] == "3"
    with pytest.raises(ValueError, match="'digits' does not have the classes of the model in .*labels.txt .*'digit 0'"):
        ExportData.read(Export(str(run), dataset="digits", check_images=1), loaded)
    shutil.copy(other, run / "labels.txt")
    assert ExportData.read(Export(str(run), dataset="digits", check_images=1), loaded).class_names[3] == "3"


def test_split_without_labels_raises(model, monkeypatch):
    """Its accuracies would all be 0, without a drop."""
    unlabeled = [np.zeros((8, 8, 3), "uint8")], np.array([-1])
    monkeypatch.setattr("keras_vit.recipes.data.decoded_images", lambda *_, **__: iter([unlabeled]))
    with pytest.raises(ValueError, match="images of 'test' of 'digits' have no labels"):
        ExportData.read(Export(model, dataset="digits", check_images=1), keras_vit.load(model))
