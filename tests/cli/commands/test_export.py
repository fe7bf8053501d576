"""`keras-vit export` and `benchmark` on small models."""

import errno
import json
import shutil

import keras
import numpy as np
import pytest
from goldens import foundation_folder
from images_on_disk import jpeg
from loaded_signatures import load

import keras_vit
from keras_vit.export import read_description
from keras_vit_cli.commands.export.command import Export
from keras_vit_cli.commands.export.files import ExportData

pytestmark = pytest.mark.slow

INT8 = ["--dataset", "digits", "--formats", "int8"]
FEW_IMAGES = ["--check-images", "40", "--calibration-images", "20", "--max-accuracy-drop", "100"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """File of an untrained model for digits."""
    path = tmp_path_factory.mktemp("model") / "digits.keras"
    keras.utils.set_random_seed(0)
    sizes = {"image_size": 8, "patch_size": 2, "depth": 1, "width": 32, "mlp_dim": 64, "num_heads": 2}
    model = keras_vit.VisionTransformer(**sizes, num_classes=10)
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    model.save(path)
    return str(path)


@pytest.fixture
def export(model, tmp_path, run_cli):
    """Runs `export` of the model to tmp_path/out; returns its status, output and errors."""
    return lambda *options: run_cli("export", model, "--output", tmp_path / "out", *options)


def row_of(format_, output):
    return next(line for line in output.splitlines() if line.startswith(f"| {format_} "))


def test_saved_model_web_and_tflite(export, tmp_path, run_cli):
    options = ["--dataset", "digits", "--formats", "saved-model", "web", "int8", "--target", "litert2"]
    options += ["--default-signature", "serve_uint8"]
    status, output, _ = export(*options, *FEW_IMAGES, "--license", "CC0-1.0")
    assert status == 0 and "40 images of digits (test)" in output and "litert2: fully delegated" in output
    assert "+0.00 (+0) [-" in row_of("saved-model", output)
    assert "\n| web |" in output and "\nweb/model.tflite: " in output  # compared and audited, too
    files = {path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".json"}
    assert files == {"saved_model", "web", "model-int8.tflite"}
    pixels = np.zeros((2, 9, 7, 3), "uint8")
    assert load(tmp_path / "out" / "saved_model")["serving_default"](pixels)["top_classes"].shape == (2, 5)
    status, described, _ = run_cli("describe", tmp_path / "out" / "model-int8.tflite")
    assert status == 0 and "classify" in described and "uint8" in described
    page = tmp_path / "out" / "web"
    assert str(page / "index.html") in output and (page / "index.html").is_file()
    about = read_description(page / "model.tflite").description
    assert about.license == "CC0-1.0" and about.class_names == tuple(map(str, range(10)))


def test_accuracy_drop_above_the_limit_is_not_saved(export, tmp_path):
    options = ["--dataset", "digits", "--formats", "float32", *FEW_IMAGES, "--max-accuracy-drop", "-1"]
    status, output, errors = export(*options)
    assert status == 1 and "float32 has an accuracy drop of 0.00 percentage points, above -1" in errors
    assert "+0.00 (+0) [-" in row_of("float32", output) and not list(tmp_path.iterdir())
    status, output, _ = export(*options, "--keep-going")
    assert status == 1 and str(tmp_path / "out") in output and (tmp_path / "out" / "model-float32.tflite").is_file()


def test_nan_is_no_limit(export):
    status, _, errors = export("--dataset", "digits", "--max-accuracy-drop", "nan")
    assert status == 1 and "--max-accuracy-drop" in errors


@pytest.mark.extended
def test_unsupported_target_is_not_saved(export, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.export.audit.targets.litert2", lambda operation: "not supported in this test")
    status, output, errors = export("--formats", "float32", "--target", "litert2")
    assert status == 1 and "litert2" in errors and "--keep-going" in errors and "litert2" in output
    assert "compared" not in output  # what is not saved
    status, _, errors = export("--target", "litert2", "--formats", "float32", "saved-model")
    assert status == 1 and "--formats saved-model" in errors and not list(tmp_path.iterdir())


def test_int4_of_few_images_is_not_calibrated(export, tmp_path):
    few = ["--check-images", "5", "--calibration-split", "train[:10]", "--max-accuracy-drop", "100"]
    status, output, _ = export("--dataset", "digits", "--formats", "int4-weights", *few)
    assert status == 0 and "int4-weights is not calibrated: 'train[:10]' has 10 images" in output
    assert (tmp_path / "out" / "model-int4-weights.tflite").is_file()
    shutil.rmtree(tmp_path / "out")
    status, _, errors = export("--dataset", "digits", "--formats", "int4-weights", "int8", *few)
    assert (
        status == 1 and "int8: 'train[:10]' has 10 images, fewer than 20 for calibration. Pass another --cal" in errors
    )


def test_model_without_a_head(tiny_files, tmp_path, run_cli):
    command = ["export", tiny_files / "0.keras", "--output", tmp_path / "out"]
    status, _, errors = run_cli(*command, *INT8, "--calibration-images", 20)
    assert status == 1 and "--signatures embed" in errors
    status, _, errors = run_cli(*command, "--formats", "web")
    assert status == 1 and "no head" in errors
    options = ["--dataset", "digits", "--formats", "saved-model", "float32", "--signatures", "embed"]
    status, output, _ = run_cli(*command, *options, "--check-images", 2)
    assert status == 0 and "2 images of digits (test)" in output
    assert all(row_of(name, output).startswith(f"| {name} | 1.0000 | 1.0000 | ") for name in ("saved-model", "float32"))
    shutil.rmtree(tmp_path / "out")
    status, output, _ = run_cli(*command, "--formats", "float32", "--signatures", "embed")
    assert status == 0 and "Not compared with Keras: requires --dataset." in output


@pytest.mark.parametrize(
    "count,split,words", [(20, "test[20:]", []), (200, "test[10:40]", ["30 calibration images", "10 of the 30"])]
)
def test_few_or_shared_calibration_images_are_noted(model, data_dir, count, split, words):
    options = {"check_images": 20, "calibration_images": count, "calibration_split": split}
    options = Export(model, formats=("int8",), dataset="digits", data_dir=data_dir, **options)
    notes = ExportData.read(options, keras_vit.load(model)).notes
    assert [word in note for word, note in zip(words, notes, strict=True)] == [True] * len(words)


def test_sensitivity(model, run_cli):
    status, output, _ = run_cli("export", model, *INT8, "--sensitivity", *FEW_IMAGES)
    names = [line.split("|")[1].strip() for line in output.splitlines() if line.startswith("| ")][1:]
    assert status == 0 and set(names[:4]) == {"block_0/attention", "block_0/mlp", "head", "all else"}


@pytest.mark.parametrize(
    "options,words",
    [
        ("--dataset digits --split nope", "'nope'"),
        ("--dataset digits --formats int8 --keep-float block_7/mlp", "block_0/mlp, head, all else"),
        ("--dataset folder:photos", "has 2 classes, but the model has 10"),
        ("--dataset folder:emptied", "cannot be decoded"),
        ("--class-names binary", "UTF-8"),
        ("--default-signature serve_bytes", "Add saved-model to --formats"),
        ("--class-names three", "3 names"),
        ("--class-names empty.txt", "empty.txt is empty"),
        ("--class-names none", "none"),
    ],
)
def test_invalid_arguments(model, workplace, mistake, options, words):
    for name, content in (("three", b"a\nb\nc\n"), ("empty.txt", b""), ("binary", b"\xff\xfe")):
        (workplace / name).write_bytes(content)
    for number in range(20):
        (place := workplace / "emptied" / ("train", "test")[number % 2] / f"class {number // 2}").mkdir(parents=True)
        (place / "0.png").write_bytes(b"")
    assert words in mistake(f"export {model} --output out {options}")


def test_full_disk_leaves_nothing_and_onnx_has_class_names(export, tmp_path, monkeypatch):
    import onnx

    (tmp_path / "labels.txt").write_text("\n".join(f"number {i}" for i in range(10)))
    formats = {
        "onnx-float16": onnx.TensorProto.FLOAT,
        "onnx-pixels": onnx.TensorProto.UINT8,
    }
    status, _, errors = export("--formats", *formats, "--class-names", tmp_path / "labels.txt")
    assert status == 0, errors
    for name, dtype in formats.items():
        proto = onnx.load(tmp_path / "out" / f"{name.replace('onnx', 'model')}.onnx")
        properties = {entry.key: entry.value for entry in proto.metadata_props}
        assert properties["class_names"].splitlines() == [f"number {i}" for i in range(10)]
        assert proto.graph.input[0].type.tensor_type.elem_type == dtype
    shutil.rmtree(tmp_path / "out")

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("keras_vit.export.tflite.convert.write_file", full)
    status, _, errors = export("--formats", "float32")
    assert status == 1 and f"{tmp_path / 'out'}." in errors and list(tmp_path.iterdir()) == [tmp_path / "labels.txt"]


def test_class_names_are_those_of_the_run(model, tmp_path):
    """With a dataset, too, whose classes must be among them; a file in the options replaces both."""
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
    with pytest.raises(ValueError, match="'digit 0'.*labels.txt"):
        ExportData.read(Export(str(run), dataset="digits", check_images=1), keras_vit.load(run))
    (run / "labels.txt").write_text("".join(f"{i}\n" for i in reversed(range(10))))
    data = ExportData.read(Export(str(run), dataset="digits", check_images=9), keras_vit.load(run))
    assert data.class_names[3] == "6"
    first = ExportData.read(Export(model, dataset="digits", check_images=9), loaded)
    assert data.labels.tolist() == [9 - label for label in first.labels]


def test_split_without_labels_raises(model, monkeypatch):
    """Its accuracies would all be 0, without a drop."""
    unlabeled = [np.zeros((8, 8, 3), "uint8")], np.array([-1])
    monkeypatch.setattr("keras_vit.recipes.data.decoded_images", lambda *_, **__: iter([unlabeled]))
    with pytest.raises(ValueError, match="no labels"):
        ExportData.read(Export(model, dataset="digits", check_images=1), keras_vit.load(model))


def test_projections_are_no_classes(tmp_path, run_cli):
    (tmp_path / "published").mkdir()
    weights = foundation_folder(tmp_path / "published", "hf_clip")
    (tmp_path / "1.jpg").write_bytes(jpeg(100))
    (tmp_path / "names.txt").write_text("\n".join("abcdefghij"))
    output = ["--output", tmp_path / "exported"]
    for arguments in (
        ["classify", tmp_path / "1.jpg", "--model", weights],
        ["evaluate", weights, "--dataset", "digits"],
        ["export", weights, "--formats", "float32", "saved-model", *output],
        ["export", weights, "--formats", "web", *output],
        ["export", weights, "--formats", "onnx", "--class-names", tmp_path / "names.txt", *output],
    ):
        status, _, errors = run_cli(*arguments)
        assert status == 1 and "its head is a projection" in errors
    assert run_cli("export", weights, "--formats", "float32", "saved-model", "--signatures", "embed", *output)[0] == 0
    described = run_cli("describe", tmp_path / "exported" / "embed-float32.tflite")[1]
    assert "in the space that images share with texts" in described and "ImageEmbedder" in described
    loaded = load(tmp_path / "exported" / "saved_model")
    assert set(loaded) == {"serving_default", "projection", "features", "attention", "serve_bytes", "serve_uint8"}
    vit, pixels = keras_vit.load(weights), np.full((1, 40, 30, 3), 90, "uint8")
    expected = vit(vit.preprocess(pixels))
    np.testing.assert_allclose(loaded["serve_uint8"](pixels)["projection"], expected, atol=1e-4)
    np.testing.assert_allclose(loaded["serving_default"](vit.preprocess(pixels))["projection"], expected, atol=1e-4)


def test_table_and_json(tflite_files, run_cli):
    options = ["--num-threads", 1, "--num-runs", 3]
    status, printed, _ = run_cli("benchmark", *tflite_files, *options)
    assert status == 0 and all(file.name in printed for file in tflite_files)
    assert "median ms" in printed
    results = json.loads(run_cli("benchmark", *tflite_files, *options, "--json")[1])
    expected = [(str(file), 1, 3) for file in tflite_files]
    assert [(result["path"], result["num_threads"], result["num_runs"]) for result in results] == expected
