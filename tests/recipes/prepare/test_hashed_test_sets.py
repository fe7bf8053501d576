"""Hashes of test sets, from folders and datasets."""

import io

import pytest
import tensorflow_datasets as tfds
from scenes import encoded, scene

from keras_vit.recipes.prepare.hashed_test_sets import hash_test_sets
from keras_vit.recipes.prepare.outcomes import UNREADABLE


def test_indices_of_test_images_count_corrupt_ones(tmp_path):
    folder = tmp_path / "with@sign"
    contents = [encoded(scene(i), "PNG") for i in range(3)]
    contents[1] = b"no image"
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(encoding_format="png"), "label": tfds.features.ClassLabel(names=["cat"])}
    )
    examples = [(i, {"image": io.BytesIO(content), "label": 0}) for i, content in enumerate(contents)]
    tfds.dataset_builders.store_as_tfds_dataset(
        "scenes", "1.0.0", features, {"test": examples}, data_dir=folder, disable_shuffling=True
    )
    name = f"tfrecord:{folder}/scenes/1.0.0"
    for source in (name, f"{name}@test"):
        index, unreadable = hash_test_sets((source,), 60)
        assert index.names == [f"{name}@test 0", f"{name}@test 2"]
        assert unreadable == [(UNREADABLE, f"{name}@test 1", ("cannot be decoded",))]


def test_folders_and_data_sets_are_hashed(source, data_dir):
    index, unreadable = hash_test_sets((f"folder:{source}", "digits@test[:5]"), 60, data_dir)
    assert [name for name in index.names if "digits" in name] == [f"digits@test[:5] {i}" for i in range(5)]
    assert len(index.names) == 16 + 5 and index.words.shape == (4, 21)
    assert [(outcome, name) for outcome, name, _ in unreadable] == [
        (UNREADABLE, f"{source}/train/dog/{name}") for name in ("cut.jpg", "notes.txt")
    ]
    with pytest.raises(ValueError, match="No split 'holdout'"):
        hash_test_sets(("digits@holdout",), 60, data_dir)
