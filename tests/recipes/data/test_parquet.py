"""Parquet files of the Hugging Face Hub. tools/training_goldens.py wrote tests/data/hub_dataset by datasets 5.2.0."""

import json
import shutil
import sys
import types

import numpy as np
import pyarrow.parquet
import pytest
from goldens import DATA
from images_on_disk import labels_of

from keras_vit.recipes.data import decoded_images, evaluation_batches, open_dataset, training_batches
from keras_vit.recipes.recipe import Data

ONE, SEVERAL = DATA / "hub_dataset" / "one", DATA / "hub_dataset" / "several"


TEST = ONE / "data" / "test-00000-of-00001.parquet"


def described(table):
    """What the Hub's metadata say of a table, and its features."""
    info = json.loads(table.schema.metadata[b"huggingface"])
    return info, info["info"]["features"]


def write_described(table, info, file):
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), file)


def values(dataset, split):
    """What the gray images say their positions are: the writer made them 0, 10, 20, ..."""
    images, labels = next(decoded_images(dataset, split, 100))
    assert all(image.shape == (6, 7, 3) for image in images)
    return [int(image.mean()) // 10 for image in images], labels.tolist()


def test_images_labels_and_splits():
    dataset = open_dataset(Data(f"hf:{ONE}"))
    assert list(dataset.class_names) == ["cat", "dog", "sky"] and dataset.splits == {"test": 2, "train": 7}
    assert values(dataset, "train") == ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2, 0])
    assert values(dataset, "test") == ([20, 21], [2, 1])
    # Files of 4 and 3 images, in row groups of 2.
    assert values(dataset, "train[1:6]") == ([1, 2, 3, 4, 5], [1, 2, 0, 1, 2])
    assert values(dataset, "train[6:]+test[:1]") == ([6, 20], [0, 2])
    names = [name.decode() for name, *_ in dataset.read("train[3:5]").as_numpy_iterator()]
    assert all("train-0000" in name and "image" in name for name in names) and len(set(names)) == 2


def test_row_groups_are_shuffled_by_the_seed():
    dataset = open_dataset(Data(f"hf:{ONE}"))
    orders = {tuple(name for name, *_ in dataset.read_shuffled("train", seed).as_numpy_iterator()) for seed in range(8)}
    assert len(orders) > 3 and all(sorted(order) == sorted(next(iter(orders))) for order in orders)
    again = [name for name, *_ in dataset.read_shuffled("train", 3).as_numpy_iterator()]
    assert tuple(again) in orders
    data = Data(f"hf:{ONE}", image_size=8, batch_size=7, crop="none", flip=False)
    images, labels = next(training_batches(data, dataset, 0).as_numpy_iterator())
    positions = np.round((images.mean(axis=(1, 2, 3)) * 0.5 + 0.5) * 25.5).astype(int)
    assert sorted(positions) == list(range(7)) and labels.tolist() == [position % 3 for position in positions]


def test_sequences_of_labels_and_files_named_by_numbers():
    dataset = open_dataset(Data(f"hf:{SEVERAL}"))
    assert dataset.multi_label and dataset.splits == {"train": 3}
    assert labels_of(dataset, "train") == [[0, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_a_dataset_is_downloaded_from_the_hub(monkeypatch):
    calls = []

    def snapshot_download(name, **options):
        calls.append((name, options))
        if name == "no/such":
            raise RuntimeError("404 Client Error")
        return str(ONE)

    module = types.ModuleType("huggingface_hub")
    module.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    assert open_dataset(Data("hf:owner/name")).splits == {"test": 2, "train": 7}
    assert calls == [("owner/name", {"repo_type": "dataset", "allow_patterns": "*.parquet"})]
    with pytest.raises(OSError, match="'no/such'.*404 Client"):
        open_dataset(Data("hf:no/such"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"vit-for-keras\[hub\]"):
        open_dataset(Data("hf:owner/name"))


def test_lists_in_the_place_of_sequences(tmp_path):
    """As older versions of datasets describe them, in a folder whose name is not ASCII; -1 is no label."""
    (folder := tmp_path / "Häuser").mkdir()
    table = pyarrow.parquet.read_table(next((SEVERAL).rglob("*.parquet")))
    info, features = described(table)
    (label,) = [name for name, feature in features.items() if feature["_type"] != "Image"]
    features[label] = [features[label]["feature"]]
    features["boxes"] = [{"_type": "Value", "dtype": "float32"}]
    table = table.set_column(table.column_names.index(label), label, pyarrow.array([[0], [2, -1], [-1]]))
    table = table.append_column("boxes", pyarrow.array([[0.5], [], [0.1]]))
    write_described(table, info, folder / "train.parquet")
    dataset = open_dataset(Data(f"hf:{folder}"))
    assert dataset.multi_label and labels_of(dataset, "train") == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_images_that_are_null_are_skipped(tmp_path):
    table = pyarrow.parquet.read_table(TEST)
    place = table.column_names.index("image")
    entries = pyarrow.array([None, *table["image"].to_pylist()[1:]], table.schema.field("image").type)
    pyarrow.parquet.write_table(
        table.set_column(place, table.schema.field("image"), entries), tmp_path / "test.parquet"
    )
    data = Data(f"hf:{tmp_path}", image_size=8, batch_size=2, max_corrupt=0.5)
    _, labels, weights = next(evaluation_batches(data, open_dataset(data), "test").as_numpy_iterator())
    assert labels[weights == 1].tolist() == [1]


def test_one_of_several_class_labels(tmp_path):
    table = pyarrow.parquet.read_table(TEST)
    info, features = described(table)
    features["fine_label"] = features.pop("label")
    features["coarse_label"] = {"_type": "ClassLabel", "names": ["animal", "other"]}
    table = table.rename_columns(["fine_label" if name == "label" else name for name in table.column_names])
    write_described(table.append_column("coarse_label", [[1, 0]]), info, tmp_path / "test.parquet")
    fine, coarse = (open_dataset(Data(f"hf:{tmp_path}?label={name}")) for name in ("fine_label", "coarse_label"))
    assert list(fine.class_names) == ["cat", "dog", "sky"] and labels_of(fine, "test") == [2, 1]
    assert list(coarse.class_names) == ["animal", "other"] and labels_of(coarse, "test") == [1, 0]
    with pytest.raises(ValueError, match="fine_label, coarse_label"):
        open_dataset(Data(f"hf:{tmp_path}"))
    with pytest.raises(ValueError, match=r"'other'.*\?label=fine_label"):
        open_dataset(Data(f"hf:{tmp_path}?label=other"))


def test_several_configurations_and_missing_files_raise(tmp_path):
    for split in ("train", "test"):
        for config in ("plain", "noisy"):
            (folder := tmp_path / config / split).mkdir(parents=True)
            shutil.copy(TEST, folder / "0000.parquet")
    with pytest.raises(ValueError, match="noisy, plain"):
        open_dataset(Data(f"hf:{tmp_path}"))
    assert open_dataset(Data(f"hf:{tmp_path}/plain")).splits == {"test": 2, "train": 2}
    part = shutil.copytree(ONE, tmp_path / "part")
    (part / "data" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(ValueError, match="1 of 2 .*/train-00000-of-00002"):
        open_dataset(Data(f"hf:{part}"))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "train.parquet").write_bytes(TEST.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cut/train.parquet is no complete Parquet file"):
        open_dataset(Data(f"hf:{tmp_path}/cut"))


def test_files_with_other_class_names_raise(tmp_path):
    shutil.copytree(ONE / "data", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "test-00000-of-00001.parquet"
    table = pyarrow.parquet.read_table(file)
    info, features = described(table)
    features["label"]["names"] = ["dog", "cat", "sky"]
    write_described(table, info, file)
    with pytest.raises(ValueError, match=r"\(dog, cat, sky\).*\(cat, dog, sky\)"):
        open_dataset(Data(f"hf:{tmp_path}"))
    pyarrow.parquet.write_table(table.replace_schema_metadata(None), file)
    with pytest.raises(ValueError, match="Image"):  # the first file states nothing
        open_dataset(Data(f"hf:{tmp_path}"))


@pytest.mark.parametrize("names", ["cat", {"0": "cat"}, ["cat", 1], None])
def test_names_of_another_kind_are_none(names, tmp_path):
    table = pyarrow.parquet.read_table(TEST)
    info, features = described(table)
    features["label"]["names"] = names
    write_described(table, info, tmp_path / "test.parquet")
    with pytest.raises(ValueError, match="ClassLabel"):
        open_dataset(Data(f"hf:{tmp_path}"))


def test_other_folders_raise(tmp_path):
    for config in ("a", "b"):
        shutil.copytree(ONE / "data", tmp_path / "several" / config)
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"image": [b""], "label": [1]}), tmp_path / "plain" / "train.parquet")
    for name, words in (("nowhere", "nowhere"), ("empty", "Parquet"), ("several", "a, b"), ("plain", "ClassLabel")):
        with pytest.raises(ValueError, match=words):
            open_dataset(Data(f"hf:{tmp_path}/{name}"))
