"""ObjectNet, and ImageNet-V2, -A, -R and -Sketch: classes as in their authors' code, predictions among these alone."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit.class_names import imagenet_class_names
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.imagenet_variants import (
    map_to_imagenet,
    scored_classes,
    variant_images,
    variant_labels,
)
from keras_vit.recipes.recipe import Data

IDS = [wordnet_id for wordnet_id, _ in imagenet_class_names()]
WORDS = [words for _, words in imagenet_class_names()]
# The beginning of imagenet_r_indices and of indices_in_1k in the eval.py of hendrycks/imagenet-r and
# hendrycks/natural-adv-examples, and the sums of both.
FIRST = {"r": [1, 2, 4, 6, 8, 9, 11, 13, 22, 23, 26, 29, 31, 39, 47, 63], "a": [6, 11, 13, 15, 17, 22, 23, 27, 30, 37]}
SUM = {"r": 86135, "a": 102178}
FOLDERS = {"alarm_clock": "Alarm clock", "banana": "Banana", "air_freshener": "Air freshener", "bicycle": "Bicycle"}
CLASSES = {
    "Alarm clock": "analog clock; digital clock",
    "Banana": "banana",
    "Bicycle": "mountain bike, all-terrain bike, off-roader; bicycle-built-for-two, tandem bicycle, tandem",
}


def random_image(random, height=8, width=8):
    return random.integers(0, 255, (height, width, 3), dtype="uint8")


@pytest.mark.parametrize("variant", ["a", "r"])
def test_subsets_are_those_of_the_authors_code(variant):
    scored = scored_classes(variant)
    assert scored[: len(FIRST[variant])].tolist() == FIRST[variant] and scored.sum() == SUM[variant]
    assert len(scored) == 200 and np.all(np.diff(scored) > 0)
    # TensorFlow Datasets has all 1,000 names, the archives have folders of 200.
    labels = variant_labels(IDS, variant)
    assert labels[scored].tolist() == list(range(200)) and (labels < 0).sum() == 800
    np.testing.assert_array_equal(variant_labels([IDS[number] for number in scored], variant), np.arange(200))


def test_folders_of_numbers_are_sorted_as_words():
    folders = sorted(map(str, range(1000)))
    assert folders[:3] == ["0", "1", "10"]
    np.testing.assert_array_equal(variant_labels(folders, "v2"), [int(name) for name in folders])
    np.testing.assert_array_equal(variant_labels(IDS, "v2"), np.arange(1000))
    np.testing.assert_array_equal(variant_labels(IDS, "sketch"), np.arange(1000))


@pytest.mark.parametrize(
    "names,variant,message",
    [
        (["cat", IDS[0], "7"], "sketch", "2 of the 3 classes .*: cat, 7"),
        (["999", "1000"], "v2", "1 of the 2 classes .*: 1000"),
        ([IDS[1], IDS[2]], "r", "198 of the 200 classes of ImageNet-R .*: n01494475, n01498041"),
        (["0", "3"], "v2", "998 of the 1,000 classes of ImageNet-V2 .*: 1, 2, 4"),
        (IDS, "c", "v2, a, r, sketch. Received: 'c'"),
    ],
)
def test_names_of_other_data_raise(names, variant, message):
    with pytest.raises(ValueError, match=message):
        variant_labels(names, variant)


def test_images_of_other_data_raise():
    for labels, message in ((np.zeros((2, 1000), "float32"), "one label per image"), (np.array([0]), "other classes")):
        with pytest.raises(ValueError, match=message):
            list(variant_images([(["image"], labels)], variant_labels(IDS, "r")))


@pytest.mark.slow
def test_predictions_are_among_the_classes_of_the_variant(trained_toy, tmp_path):
    random, scored = np.random.default_rng(0), scored_classes("r")
    for number in scored:
        (tmp_path / IDS[number]).mkdir()
        for i in range(2):  # one of them is in the split "test"
            Image.fromarray(random_image(random)).save(tmp_path / IDS[number] / f"{i}.png")
    model, dataset = trained_toy(image_size=8, num_classes=1000, depth=1), open_dataset(Data(f"folder:{tmp_path}"))
    images, labels = next(decoded_images(dataset, "train+test", 400))
    # The largest of all 1,000 is never in the subset, and the largest within it often the first class.
    bias = 100.0 * ~np.isin(np.arange(1000), scored) + 1.0 * (np.arange(1000) == scored[0])
    model.head.bias.assign_add(bias)
    logits = np.asarray(model(model.preprocess(images)))
    assert not np.isin(logits.argmax(axis=1), scored).any()
    # As eval.py: output[:, imagenet_r_mask], whose columns are in the order of the folders.
    right = logits[:, np.isin(np.arange(1000), scored)].argmax(axis=1) == labels
    summary = evaluate_classifier(model, dataset, "train+test", imagenet_variant="r").summary
    assert summary["images"] == summary["counted"] == 400
    assert summary["top1"] == pytest.approx(right.mean()) and 0 < right.mean() < 1
    with pytest.raises(ValueError, match="200 classes, but the model has 1000"):
        evaluate_classifier(model, dataset, "train+test")
    with pytest.raises(ValueError, match="objectnet_mapping or imagenet_variant"):
        evaluate_classifier(model, dataset, "train+test", imagenet_variant="r", objectnet_mapping=tmp_path)


@pytest.fixture
def mapping(tmp_path):
    """As in the release of ObjectNet, but four classes."""
    (tmp_path / "folder_to_objectnet_label.json").write_text(json.dumps(FOLDERS))
    (tmp_path / "objectnet_to_imagenet_1k.json").write_text(json.dumps(CLASSES))
    return tmp_path


def with_border(image):
    border = np.full((image.shape[0] + 4, image.shape[1] + 4, 3), (255, 0, 0), "uint8")
    border[2:-2, 2:-2] = image
    return border


def test_map_to_imagenet(mapping):
    folders = sorted(FOLDERS)
    targets = map_to_imagenet(folders, mapping)
    assert targets.shape == (4, 1000)
    assert {folder: [IDS[number] for number in np.flatnonzero(row)] for folder, row in zip(folders, targets)} == {
        "air_freshener": [],
        "alarm_clock": ["n02708093", "n03196217"],
        "banana": ["n07753592"],
        "bicycle": ["n02835271", "n03792782"],
    }


def test_invalid_mappings(mapping):
    def check(folders, message, where=mapping, error=ValueError):
        with pytest.raises(error, match=message):
            map_to_imagenet(folders, where)

    check(["banana", "n01440764"], "1 of the 2 .* n01440764")
    check(["air_freshener"], "None of the class folders")
    check(["banana"], "folder_to_objectnet_label.json", mapping / "elsewhere", FileNotFoundError)
    (mapping / "objectnet_to_imagenet_1k.json").write_text(json.dumps({"Banana": "crane"}))
    check(["banana"], "'crane', the name of 2 classes")
    (mapping / "objectnet_to_imagenet_1k.json").write_text("<html>")
    check(["banana"], "objectnet_to_imagenet_1k.json")


@pytest.mark.slow
def test_objectnet(trained_toy, mapping):
    """Only images of classes that overlap with ImageNet count; the model sees them without their border."""
    images, random, inner = mapping / "images", np.random.default_rng(0), []
    folder_of = [folder for folder in ("alarm_clock", "banana") for _ in range(5)]
    for number, folder in enumerate([*folder_of, "air_freshener"]):
        (images / folder).mkdir(parents=True, exist_ok=True)
        inner.append(random_image(random, 20, 24))
        Image.fromarray(with_border(inner[-1])).save(images / folder / f"{number}.png")
    model = trained_toy(num_classes=1000, depth=1)
    predicted = np.argmax(model(model.preprocess(inner[:10])), axis=1)
    most = WORDS[np.bincount(predicted).argmax()]  # one folder is that of the toy's most frequent prediction
    (mapping / "objectnet_to_imagenet_1k.json").write_text(json.dumps({**CLASSES, "Banana": most}))
    dataset = open_dataset(Data(dataset=f"folder:{mapping}"))
    report = evaluate_classifier(model, dataset, "images", batch_size=4, objectnet_mapping=mapping)
    correct = {"banana": {most}, "alarm_clock": {"analog clock", "digital clock"}}
    top1 = np.mean([WORDS[number] in correct[folder] for number, folder in zip(predicted, folder_of)])
    assert report.summary["images"] == 10 and 0 < top1 < 1
    assert report.summary["top1"] == pytest.approx(top1)
    rows = {row["class"]: row["images"] for row in report.per_class}
    assert rows == {"analog clock": 5, "digital clock": 5, most: 5}
    with pytest.raises(ValueError, match="1,000 .* 4 classes"):
        evaluate_classifier(trained_toy(num_classes=4), dataset, "images", objectnet_mapping=mapping)
