import json

import numpy as np
import pytest

from keras_vit.labels import imagenet_labels
from keras_vit.recipes.evaluation.objectnet import objectnet_answers, overlapping_images

FOLDERS = {"alarm_clock": "Alarm clock", "banana": "Banana", "air_freshener": "Air freshener", "bicycle": "Bicycle"}
CLASSES = {
    "Alarm clock": "analog clock; digital clock",
    "Banana": "banana",
    "Bicycle": "mountain bike, all-terrain bike, off-roader; bicycle-built-for-two, tandem bicycle, tandem",
}


@pytest.fixture
def mapping(tmp_path):
    """As in the release, of four classes."""
    (tmp_path / "folder_to_objectnet_label.json").write_text(json.dumps(FOLDERS))
    (tmp_path / "objectnet_to_imagenet_1k.json").write_text(json.dumps(CLASSES))
    return tmp_path


def test_folders_become_classes_of_imagenet(mapping):
    folders = sorted(FOLDERS)
    answers = objectnet_answers(folders, mapping)
    assert answers.shape == (4, 1000)
    right = [[imagenet_labels()[number][0] for number in np.flatnonzero(row)] for row in answers]
    assert dict(zip(folders, right)) == {
        "air_freshener": [],
        "alarm_clock": ["n02708093", "n03196217"],
        "banana": ["n07753592"],
        "bicycle": ["n02835271", "n03792782"],
    }


def test_other_images_and_the_border_are_left_out(mapping):
    answers = objectnet_answers(list(FOLDERS), mapping)
    random = np.random.default_rng(0)
    inner = [random.integers(0, 255, (4 + i, 5, 3), dtype="uint8") for i in range(7)]
    released = [np.pad(image, ((2, 2), (2, 2), (0, 0))) for image in inner]
    for image in released:
        image[[0, 1, -2, -1]] = image[:, [0, 1, -2, -1]] = (255, 0, 0)
    folders = np.array([0, 2, 3, 2, 1, 0, 3])
    batches = [(released[:4], folders[:4]), (released[4:], folders[4:])]
    found = list(overlapping_images(batches, answers, 3))
    assert [len(images) for images, _ in found] == [3, 2]
    kept = [image for images, _ in found for image in images]
    for image, number in zip(kept, [0, 2, 4, 5, 6], strict=True):
        np.testing.assert_array_equal(image, inner[number])
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), answers[folders[[0, 2, 4, 5, 6]]])


def test_errors_name_the_remedy(mapping):
    with pytest.raises(ValueError, match="1 of the 2 class folders are not ObjectNet's: n01440764. Expected the names"):
        objectnet_answers(["banana", "n01440764"], mapping)
    with pytest.raises(ValueError, match="None of the class folders overlaps"):
        objectnet_answers(["air_freshener"], mapping)
    (mapping / "objectnet_to_imagenet_1k.json").write_text(json.dumps({"Banana": "crane"}))
    with pytest.raises(ValueError, match="has 'crane', which is the name of 2 classes"):
        objectnet_answers(["banana"], mapping)
    (mapping / "objectnet_to_imagenet_1k.json").write_text("<html>")
    with pytest.raises(ValueError, match="objectnet_to_imagenet_1k.json is not a JSON file"):
        objectnet_answers(["banana"], mapping)
    with pytest.raises(FileNotFoundError, match="folder_to_objectnet_label.json"):
        objectnet_answers(["banana"], mapping / "elsewhere")
