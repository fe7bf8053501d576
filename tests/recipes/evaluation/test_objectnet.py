import json

import numpy as np
import pytest

from keras_vit.class_names import imagenet_class_names
from keras_vit.recipes.evaluation.objectnet import map_to_imagenet, overlapping_images

FOLDERS = {"alarm_clock": "Alarm clock", "banana": "Banana", "air_freshener": "Air freshener", "bicycle": "Bicycle"}
CLASSES = {
    "Alarm clock": "analog clock; digital clock",
    "Banana": "banana",
    "Bicycle": "mountain bike, all-terrain bike, off-roader; bicycle-built-for-two, tandem bicycle, tandem",
}


@pytest.fixture
def mapping(tmp_path):
    """As in the release, but four classes."""
    (tmp_path / "folder_to_objectnet_label.json").write_text(json.dumps(FOLDERS))
    (tmp_path / "objectnet_to_imagenet_1k.json").write_text(json.dumps(CLASSES))
    return tmp_path


def test_map_to_imagenet(mapping):
    folders = sorted(FOLDERS)
    targets = map_to_imagenet(folders, mapping)
    assert targets.shape == (4, 1000)
    names = [[imagenet_class_names()[number][0] for number in np.flatnonzero(row)] for row in targets]
    assert dict(zip(folders, names)) == {
        "air_freshener": [],
        "alarm_clock": ["n02708093", "n03196217"],
        "banana": ["n07753592"],
        "bicycle": ["n02835271", "n03792782"],
    }


def test_other_images_and_the_border_are_removed(mapping):
    targets = map_to_imagenet(list(FOLDERS), mapping)
    random = np.random.default_rng(0)
    inner = [random.integers(0, 255, (4 + i, 5, 3), dtype="uint8") for i in range(7)]
    released = [np.pad(image, ((2, 2), (2, 2), (0, 0))) for image in inner]
    for image in released:
        image[[0, 1, -2, -1]] = image[:, [0, 1, -2, -1]] = (255, 0, 0)
    folders = np.array([0, 2, 3, 2, 1, 0, 3])
    batches = [(released[:4], folders[:4]), (released[4:], folders[4:])]
    found = list(overlapping_images(batches, targets, 3))
    assert [len(images) for images, _ in found] == [3, 2]
    found_images = [image for images, _ in found for image in images]
    for image, number in zip(found_images, [0, 2, 4, 5, 6], strict=True):
        np.testing.assert_array_equal(image, inner[number])
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), targets[folders[[0, 2, 4, 5, 6]]])


def test_invalid_mappings(mapping):
    with pytest.raises(ValueError, match="1 of the 2 class folders are not ObjectNet's: n01440764. Expected the names"):
        map_to_imagenet(["banana", "n01440764"], mapping)
    with pytest.raises(ValueError, match="None of the class folders overlaps"):
        map_to_imagenet(["air_freshener"], mapping)
    (mapping / "objectnet_to_imagenet_1k.json").write_text(json.dumps({"Banana": "crane"}))
    with pytest.raises(ValueError, match="contains 'crane', the name of 2 classes"):
        map_to_imagenet(["banana"], mapping)
    (mapping / "objectnet_to_imagenet_1k.json").write_text("<html>")
    with pytest.raises(ValueError, match="objectnet_to_imagenet_1k.json is not valid JSON"):
        map_to_imagenet(["banana"], mapping)
    with pytest.raises(FileNotFoundError, match="folder_to_objectnet_label.json"):
        map_to_imagenet(["banana"], mapping / "elsewhere")
