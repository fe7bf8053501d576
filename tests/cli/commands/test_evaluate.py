"""Output and errors of `keras-vit evaluate`. Metrics: tests/recipes/evaluation."""

import csv
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import int64_feature, jpeg, write_record
from PIL import Image
from scenes import scene
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, log_loss

import keras_vit
from keras_vit import BiT
from keras_vit.class_names import class_names_text
from keras_vit.export import write_onnx, write_tflite
from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.recipe import Data
from keras_vit_cli.commands.evaluate import Evaluate


@pytest.fixture
def run(run_cli):
    """Runs `evaluate`; returns its exit status, lines and errors."""

    def run_command(*arguments):
        status, output, errors = run_cli("evaluate", *arguments)
        return status, output.splitlines(), errors

    return run_command


@pytest.fixture
def digits(data_dir):
    open_dataset(Data("digits", data_dir=data_dir))  # tfds prints while it prepares a dataset
    return "--dataset", "digits", "--data-dir", data_dir, "--split", "test[:45]", "--batch-size", "20"


@pytest.fixture
def model(trained_toy, tmp_path):
    model = trained_toy(image_size=8, patch_size=2, num_classes=10, depth=1)
    model.save(tmp_path / "x.keras")
    return model


@pytest.fixture
def folder(tmp_path):
    """13 images of three classes and many sizes: (dataset, images, labels)."""
    random, images, labels = np.random.default_rng(0), [], []
    for i in range(13):
        image = random.integers(0, 256, (5 + i, 20 - i, 3), dtype="uint8")
        class_folder = tmp_path / "images" / "test" / f"class{i % 3}"
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image if i else image[..., 0]).save(class_folder / f"{i:02}.png")
        images.append(image if i else np.repeat(image[..., :1], 3, -1))
        labels.append(i % 3)
    return f"folder:{tmp_path / 'images'}", images, np.array(labels)


@pytest.mark.slow
def test_everything_is_printed_as_text_and_as_json(run, digits, model, data_dir, tmp_path):
    expected = evaluate_classifier(model, open_dataset(Data("digits", data_dir=data_dir)), "test[:45]", batch_size=20)
    summary = expected.summary
    status, lines, _ = run(tmp_path / "x.keras", *digits, "--per-class")
    assert status == 0 and lines[0].startswith("45 images of digits (test[:45]), Preprocessing(")
    for line, name, key in zip(lines[1:3], ("top-1", "top-5"), ("top1", "top5"), strict=True):
        assert line.startswith(f"{name} {100 * summary[key]:.1f} % [") and f"{45 * summary[key]:.0f} of 45" in line
    assert lines[3] == f"expected calibration error (15 bins) {summary['calibration_error']:.2%}"
    assert lines[4] == f"negative log-likelihood {summary['negative_log_likelihood']:.4f}"
    assert f"{summary['balanced_accuracy']:.2%}" in lines[5] and f"{summary['macro_f1']:.2%}" in lines[5]
    assert f"{summary['majority']:.2%}" in lines[6]
    assert lines[8].split() == "class images recall most confused with".split()
    rows = [[row["class"], str(row["images"]), f"{row['accuracy']:.2%}"] for row in expected.per_class]
    assert [line.split()[:3] for line in lines[9:]] == rows
    found = json.loads("".join(run(tmp_path / "x.keras", *digits, "--json")[1]))
    assert found["dataset"] == "digits" and found["preprocessing"]["image_size"] == [8, 8]
    right = round(45 * summary["top1"])
    ends = binomtest(right, 45).proportion_ci(method="wilson")
    assert found["top1_interval"] == pytest.approx([ends.low, ends.high], abs=1e-6)
    assert {name: found[name] for name in summary} == pytest.approx(summary, rel=1e-4)
    assert found["classes"] == expected.per_class and len(found["reliability"]) == 15
    assert found["class_names"] == list("0123456789")
    assert found["confusion_matrix"] == expected.confusion_matrix.tolist() and np.sum(found["confusion_matrix"]) == 45
    assert [path.name for path in tmp_path.iterdir()] == ["x.keras"]


@pytest.mark.slow
def test_all_predictions(run, folder, trained_toy, tmp_path):
    """For a Keras model and its files, against scikit-learn and `classify` of each image."""
    dataset, images, labels = folder
    (tmp_path / "images" / "test" / "class1" / "broken.png").write_bytes(b"no image")
    model = trained_toy(num_classes=3)
    model.class_names = "class0", "class1", "class2"
    model.save(tmp_path / "x.keras")
    write_tflite(model, tmp_path, ["float32"])
    write_onnx(model, tmp_path / "x.onnx")
    keras.Sequential([model, keras.layers.Softmax()]).save(tmp_path / "outer.keras")
    pixels = keras.Input((24, 20, 3))
    keras.Model(pixels, model(model.preprocess(pixels))).save(tmp_path / "pixels.keras")
    answers = [dict(model.classify([image])[0]) for image in images]
    probabilities = np.array([[answer[name] for name in model.class_names] for answer in answers])
    kinds = {"x.keras": 2e-6, "outer.keras": 2e-6, "pixels.keras": None, "model-float32.tflite": 1e-5, "x.onnx": 1e-5}
    for name, tolerance in kinds.items():
        file = tmp_path / "predictions.csv"
        options = "--max-corrupt", "0.2", "--json", "--predictions", file, "--report", tmp_path / "x.html"
        status, lines, _ = run(tmp_path / name, "--dataset", dataset, *options)
        summary = json.loads("".join(lines))
        assert status == 0 and summary["skipped"] == 1 and "broken.png" in (tmp_path / "x.html").read_text()
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert list(rows[0]) == ["file", "label", "prediction", *model.class_names]
        numbers = [int(Path(row["file"]).stem) for row in rows]
        truth, predicted = ([row[column] for row in rows] for column in ("label", "prediction"))
        assert sorted(numbers) == list(range(13)) and truth == [f"class{i % 3}" for i in numbers]
        written = np.array([[float(row[name]) for name in model.class_names] for row in rows])
        expected = probabilities
        if tolerance is None:  # it resizes twice, as `keras_vit.classify` does
            outer = [dict(keras_vit.classify(keras.saving.load_model(tmp_path / name), [image])[0]) for image in images]
            expected, tolerance = np.array([[answer[name] for name in model.class_names] for answer in outer]), 2e-6
        np.testing.assert_allclose(written, expected[numbers], atol=tolerance)
        assert summary["top1"] == pytest.approx(accuracy_score(truth, predicted))
        assert summary["negative_log_likelihood"] == pytest.approx(log_loss(labels[numbers], written), abs=1e-4)
    for wrong in (tmp_path / "no" / "x.csv", tmp_path / "folder"):
        status, _, errors = run(tmp_path / "x.keras", "--dataset", dataset, "--predictions", wrong)
        assert status == 1 and "--predictions is a .csv file" in errors and not wrong.exists()


def test_images_without_a_label(run, digits, model, tmp_path, monkeypatch):
    image = np.zeros((8, 8, 3), "uint8")
    batches = [([image, image], np.eye(10)[:2] * [[1], [0]])]  # the second label has no class
    monkeypatch.setattr("keras_vit.recipes.evaluation.classification.decoded_images", lambda *_, **__: iter(batches))
    status, lines, _ = run(tmp_path / "x.keras", *digits, "--split", "test[:2]")
    assert status == 0 and lines[0].startswith("2 images of") and lines[1] == "1 of them have a label and count"
    batches[:] = [([image], np.array([-1]))]  # as in the test split of ImageNet
    status, lines, errors = run(tmp_path / "x.keras", *digits)
    assert status == 1 and not lines and "no labels" in errors


def test_bit(run, folder, tmp_path):
    BiT(stages=(1,), width_factor=0.5, num_classes=3, image_size=16).save(tmp_path / "bit.keras")
    status, lines, _ = run(tmp_path / "bit.keras", "--dataset", folder[0])
    assert status == 0 and "image_size=(16, 16)" in lines[0] and lines[1].startswith("top-1")
    classes = folder[0] + "/test"  # the same images as a folder without splits
    status, lines, _ = run(tmp_path / "bit.keras", "--dataset", classes)
    assert status == 0 and int(lines[0].split()[0]) >= 3 and "--split train+test" in lines[1]
    assert run(tmp_path / "bit.keras", "--dataset", classes, "--split", "train+test")[1][1].startswith("top-1")


@pytest.mark.parametrize(
    "options,word",
    [
        (["--split", "holdout"], "'holdout'"),
        (["--split", "test[:0]"], "'test[:0]'"),
        (["--crop-fraction", 2], "`crop_fraction`"),
        (["--dataset", "no_such_set"], "'no_such_set'"),
        (["--objectnet-mapping", "nowhere"], "folder_to_objectnet_label.json"),
        (["--imagenet-variant", "a"], "10 of the 10 classes are not ImageNet's"),
    ],
)
def test_wrong_options(run, model, digits, tmp_path, options, word):
    status, lines, errors = run(tmp_path / "x.keras", *digits, *options)
    assert status == 1 and not lines and word in errors


@pytest.mark.parametrize("place", ["run", "x.keras"])
def test_classes_of_the_model_are_compared_with_those_of_the_data(run, folder, trained_toy, tmp_path, place):
    """After renaming a folder the labels are shifted: without the comparison, only the accuracy would show it."""
    (tmp_path / "run").mkdir()
    trained_toy(num_classes=3, depth=1).save(tmp_path / ("x.keras" if place == "x.keras" else "run/model.keras"))
    names = tmp_path / ("x.keras.labels.txt" if place == "x.keras" else "run/labels.txt")
    names.write_text("class0\nclass1\nclass2\n")
    arguments = tmp_path / place, "--dataset", folder[0]
    assert run(*arguments)[0] == 0
    (tmp_path / "images/test/class0").rename(tmp_path / "images/test/later")
    for text, words in (
        ("class0\nclass1\nclass2\n", [str(names), "missing here: 'class0'; new here: 'later'"]),
        ("class1\nlater\n", ["2 class names", "3 classes"]),
    ):
        names.write_text(text)
        status, lines, errors = run(*arguments)
        assert status == 1 and not lines and all(word in errors for word in words), errors


@pytest.mark.parametrize("kind", ["folder", "csv"])
def test_labels_are_matched_with_outputs_by_name(trained_toy, tmp_path, kind):
    """12 classes in the order of numbers, of which 11 have images, in folders in the order of text."""
    names, random = [str(i) for i in range(12)], np.random.default_rng(0)
    model = trained_toy(num_classes=12, depth=1, multi_label=kind == "csv", class_names=names)
    rows = []
    for name in names[1:]:
        (tmp_path / "test" / name).mkdir(parents=True)
        pixels = random.integers(0, 256, (*model.image_size, 3), dtype="uint8")
        Image.fromarray(pixels).save(tmp_path / "test" / name / "1.png")
        rows.append((pixels, int(name)))
    lines = [f"test/{name}/1.png,{name}" for name in names[1:]]
    (tmp_path / "test.csv").write_text("image,labels\n" + "\n".join(lines) + "\n")
    dataset = open_dataset(Data(f"{kind}:{tmp_path}"))
    assert list(dataset.class_names) == sorted(names[1:]) != names[1:]
    report = evaluate_classifier(model, dataset, "test")
    logits = np.asarray(model(model.preprocess([pixels for pixels, _ in rows])))  # (11, 12)
    labels = np.array([label for _, label in rows])
    assert report.per_class[0]["class"] == "1" and report.per_class[-1]["class"] == "11"
    if kind == "folder":
        assert report.summary["top1"] == np.mean(logits.argmax(axis=1) == labels)
        log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected = -np.mean(log_softmax[np.arange(11), labels])
        assert report.summary["negative_log_likelihood"] == pytest.approx(expected, rel=1e-5)
    else:
        ranks = np.array([(logits[:, label] >= logits[row, label]).sum() for row, label in enumerate(labels)])
        assert report.summary["mean_average_precision"] == pytest.approx(np.mean(1 / ranks))
    model.class_names = names[:-1] + ["other"]  # other words for the same classes, if there are as many
    with pytest.raises(ValueError, match="11 classes, but the model has 12"):
        evaluate_classifier(model, dataset, "test")


def test_numbers_as_class_names_are_noted(run, toy, tmp_path, caplog):
    for name in map(str, range(11)):
        (tmp_path / "images" / "test" / name).mkdir(parents=True)
        (tmp_path / "images/test" / name / "1.jpg").write_bytes(jpeg(10))
    toy(num_classes=11, depth=1).save(tmp_path / "x.keras")
    arguments = tmp_path / "x.keras", "--dataset", f"folder:{tmp_path / 'images'}"
    assert run(*arguments)[0] == 0 and "output 2 counts as '10'" in caplog.text
    (tmp_path / "x.keras.labels.txt").write_text("".join(f"{i}\n" for i in range(11)))
    caplog.clear()
    assert run(*arguments)[0] == 0 and not caplog.text


def test_a_part_of_the_models_classes(run, toy, tmp_path, caplog):
    """As docs/data.md says, also of models whose classes have no names in the file."""
    names = [f"class{i}" for i in range(900)]
    for name in names:
        (tmp_path / "images" / "train" / name).mkdir(parents=True)
    for i in (3, 7):
        (tmp_path / "images/train" / names[i] / "1.jpg").write_bytes(jpeg(10))
    for folder in ("run", "records"):
        (tmp_path / folder).mkdir()
    toy(num_classes=900, depth=1).save(tmp_path / "run" / "model.keras")
    images = "--dataset", f"folder:{tmp_path / 'images'}", "--split", "train"
    assert "2 classes, but" in run(tmp_path / "run", *images)[2]
    (tmp_path / "run" / "labels.txt").write_text(class_names_text(names))
    status, lines, _ = run(tmp_path / "run", *images, "--per-class")
    assert status == 0 and "898 not used (empty folders): train/class0" in caplog.text
    assert [line.split()[:2] for line in lines[-2:]] == [["class3", "1"], ["class7", "1"]]
    shutil.copy(tmp_path / "run" / "labels.txt", tmp_path / "records")
    with tf.io.TFRecordWriter(str(tmp_path / "records" / "test.tfrecord")) as writer:
        for label in (3, 7, 7):
            write_record(writer, ("image", "label"), int64_feature(label))
    status, lines, _ = run(tmp_path / "run", "--dataset", f"tfrecord:{tmp_path / 'records'}", "--per-class")
    assert status == 0 and int(lines[0].split()[0]) >= 3
    assert [line.split()[:2] for line in lines[-2:]] == [["class3", "1"], ["class7", "2"]]


def test_images_that_cannot_be_decoded(run, folder, toy, tmp_path):
    toy(num_classes=3, depth=1).save(tmp_path / "x.keras")
    (tmp_path / "images/test/class0/broken.png").write_bytes(b"")
    arguments = tmp_path / "x.keras", "--dataset", folder[0], "--max-corrupt"
    assert "0 are allowed (max_corrupt=0.01; --max-corrupt)" in run(*arguments[:-1])[2]
    status, lines, _ = run(*arguments, 0.1)
    assert status == 0 and lines[0].startswith("13 images of") and lines[1].startswith("1 more cannot be decoded")
    status, _, errors = run(*arguments, "nan")
    assert status == 1 and "--max-corrupt" in errors


@pytest.mark.slow
def test_copies_of_training_images_are_counted(run, trained_toy, tmp_path):
    for number in range(12):
        file = tmp_path / "images" / ("train" if number < 8 else "test") / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        scene(number % 9, (60, 50)).save(file)  # images 9, 10 and 11 are 0, 1 and 2
    scene(3, (60, 50)).resize((90, 75)).save(tmp_path / "images" / "test" / "class1" / "3 large.jpg")
    trained_toy(num_classes=2, class_names=["class0", "class1"]).save(tmp_path / "x.keras")
    dataset = f"folder:{tmp_path / 'images'}"
    options = "--dataset", dataset, "--against", f"{dataset}@train"
    status, lines, _ = run(tmp_path / "x.keras", *options, "--json", "--report", tmp_path / "x.html")
    copies = {tuple(Path(file).stem for file in pair) for pair in json.loads("".join(lines))["copies"]}
    assert status == 0 and copies == {("9", "0"), ("10", "1"), ("11", "2"), ("3 large", "3")}
    assert "4 of 5 test images are copies" in (tmp_path / "x.html").read_text()
    status, lines, _ = run(tmp_path / "x.keras", *options, "--split", "train")
    assert "8 of 8 test images are copies" in lines[-1]
    assert run(tmp_path / "x.keras", "--dataset", dataset, "--against", dataset)[0] == 1


@pytest.mark.parametrize("group,named", [(None, None), (r"p\d+", r"p\d+"), ("runs/x/groups.csv", "{}/groups.csv")])
def test_the_groups_of_a_run_that_are_not_passed_are_named(group, named, tmp_path):
    """A table of groups is that in the folder of the run, which may have been moved."""
    (tmp_path / "groups.csv").touch()
    (tmp_path / "recipe.json").write_text(json.dumps({"data": {"dataset": "folder:x", "group": group}}))
    unused = Evaluate(str(tmp_path), "folder:x")._unused_group()
    assert unused == (named and named.format(tmp_path))
