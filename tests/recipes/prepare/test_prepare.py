"""Folders of images as TFRecords: what is kept, unchanged and in which order, with Apache Beam and without."""

import csv
import io
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image
from scenes import encoded, opened, scene

from keras_vit.recipes.prepare import builder, prepare
from keras_vit.recipes.prepare.image_files import KEPT, UNREADABLE, examine
from keras_vit.recipes.prepare.test_set_hashes import known_images

FORMS = ("JPEG", "PNG", "BMP")


@pytest.fixture
def source(tmp_path):
    """12 training images of three formats in two classes, 2 test images, 2 copies of these, 2 broken files."""
    root = tmp_path / "images"
    contents = {}
    for i in range(12):
        contents[f"train/{'cat' if i % 2 else 'dog'}/{i:02}.{FORMS[i % 3].lower()}"] = encoded(scene(i), FORMS[i % 3])
    for i, test in enumerate((scene(100), scene(101))):
        contents[f"test/{'cat' if i else 'bird'}/{i}.png"] = encoded(test, "PNG")
        copied = test.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if i else test
        contents[f"train/cat/copy{i}.jpg"] = encoded(copied, quality=75)
    contents["train/dog/cut.jpg"] = contents["train/dog/00.jpeg"][:900]
    contents["train/dog/notes.txt"] = b"no image"
    contents["train/dog/.hidden"] = b"no image"
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def examples(folder, split):
    skip = {"image": tfds.decode.SkipDecoding()}
    dataset = tfds.builder_from_directory(str(folder)).as_dataset(split, decoders=skip)
    return [(e["file_name"].decode(), e["image"], int(e["label"])) for e in dataset.as_numpy_iterator()]


def rows(file):
    return list(csv.reader(io.StringIO(file.read_text())))[1:]


def everything(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_images_are_kept_as_they_are(source, tmp_path):
    counts = prepare(str(source), str(tmp_path / "out"))
    assert (counts["train"].kept, counts["train"].unreadable, counts["train"].duplicates) == (14, 2, 0)
    assert (counts["test"].kept, counts["test"].shards, sorted(counts)) == (2, 1, ["test", "train"])
    assert sorted(os.listdir(tmp_path)) == ["out", "images"]
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.info.features["label"].names == ["bird", "cat", "dog"]
    found = examples(tmp_path / "out", "train")
    assert len({name for name, _, _ in found}) == 14
    for name, image, label in found:
        file = source / "train" / name
        assert label == ["bird", "cat", "dog"].index(file.parent.name)
        if file.suffix == ".bmp":
            assert opened(image).format == "PNG"
            np.testing.assert_array_equal(np.asarray(opened(image)), np.asarray(Image.open(file)))
        else:
            assert image == file.read_bytes()
    names = [name for name, _, _ in found]
    assert names == sorted(names, key=tfds.core.hashing.Hasher("train").hash_key) != sorted(names)


def test_what_cannot_be_read_is_listed(source, tmp_path):
    (source / "train" / "cat" / "deeper").mkdir()
    (source / "train" / "cat" / "gone.jpg").symlink_to(source / "nowhere.jpg")
    counts = prepare(str(source), str(tmp_path / "out"))
    found = rows(tmp_path / "out" / "unreadable-train.csv")
    assert [name for name, _ in found] == ["cat/deeper", "cat/gone.jpg", "dog/cut.jpg", "dog/notes.txt"]
    assert "directory" in found[0][1] and "No such file" in found[1][1]
    assert found[2][1].startswith("OSError: ") and found[3][1] == "no image of a known format"
    assert counts["train"].unreadable == 4 and rows(tmp_path / "out" / "unreadable-test.csv") == []


def test_copies_of_test_images_are_left_out_of_the_training_set_only(source, tmp_path):
    counts = prepare(str(source), str(tmp_path / "out"), against=(f"folder:{source}/test",))
    assert counts["train"].duplicates == 2 and counts["train"].kept == 12 and counts["test"].kept == 2
    (first, of, bits, mirrored), second = rows(tmp_path / "out" / "duplicates-train.csv")
    assert (first, of, mirrored) == ("cat/copy0.jpg", f"{source}/test/bird/0.png", "False") and 0 <= int(bits) <= 60
    assert (second[0], second[1], second[3]) == ("cat/copy1.jpg", f"{source}/test/cat/1.png", "True")
    assert not [name for name, _, _ in examples(tmp_path / "out", "train") if "copy" in name]


def test_beam_writes_the_same(source, tmp_path):
    against = (f"folder:{source}/test",)
    here, there = tmp_path / "here", tmp_path / "there"
    expected = prepare(str(source), str(here), against=against, shard_megabytes=0.02)
    sizes = [file.stat().st_size for file in here.glob("images-train*")]
    assert 10_000 < np.mean(sizes) <= 21_000 and len(sizes) == expected["train"].shards
    counts = prepare(str(source), str(there), against=against, shard_megabytes=0.02, beam_runner="DirectRunner")
    assert expected["train"].shards > 1 and counts["train"].shards > 1
    for split in ("train", "test"):
        assert examples(there, split) == examples(here, split)
        assert (counts[split].kept, counts[split].duplicates) == (expected[split].kept, expected[split].duplicates)
    for file in here.glob("*.csv"):
        assert (there / file.name).read_text() == file.read_text()


def test_dry_run_writes_the_lists_only(source, tmp_path):
    arguments = {"source": str(source), "against": (f"folder:{source}/test",), "dry_run": True}
    counts = prepare(output=str(tmp_path / "here"), **arguments)
    options = ("direct_num_workers=1", "--no_auth")
    prepare(output=str(tmp_path / "there"), beam_runner="DirectRunner", beam_options=options, **arguments)
    assert (counts["train"].kept, counts["train"].duplicates, counts["train"].unreadable) == (None, 2, 2)
    found = everything(tmp_path / "here")
    assert sorted(map(str, found)) == [f"{kind}-{s}.csv" for kind in ("duplicates", "unreadable") for s in SPLITS]
    assert everything(tmp_path / "there") == found


SPLITS = ("test", "train")


def test_classes_without_splits(source, tmp_path):
    counts = prepare(str(source / "train"), str(tmp_path / "out"), train_split="pets", flat=True)
    assert counts["pets"].kept == 14 and len(examples(tmp_path / "out", "pets[:50%]")) == 7
    with pytest.raises(ValueError, match="not laid out as .*<split>/<class>/<image>. If cat, dog are classes, say"):
        prepare(str(source / "train"), str(tmp_path / "other"))
    with pytest.raises(ValueError, match="not laid out as .*<class>/<image>"):
        prepare(str(source / "train" / "cat"), str(tmp_path / "other"), flat=True)


def test_wrong_input_is_refused_before_anything_is_written(source, tmp_path):
    train, out = source / "train", str(tmp_path / "out")
    cases = [
        ({"source": str(tmp_path / "nowhere")}, "There is no folder .*nowhere"),
        ({"against": ("digits@test",), "train_split": "training"}, "no split 'training' .* only test, train"),
        ({"against": (f"folder:{tmp_path}/nowhere",)}, "There are no images in folder:"),
        ({"against": ("no_such_set@test",)}, "knows no data set 'no_such_set'"),
        ({"shard_megabytes": 0}, "cannot have 0 megabytes"),
        ({"threshold_bits": 200, "against": ("no_such_set@test",)}, "threshold is 200 bits"),  # before anything slow
        ({"beam_options": ("no_auth",)}, r"\(no_auth\) without a runner: name one with --beam-runner"),
        ({"source": str(train), "flat": True, "train_split": "all"}, "'all' .* needs another name"),
        ({"source": str(train), "flat": True, "train_split": "train-1"}, "'train-1' .* needs another name"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            prepare(**{"source": str(source), "output": out, **changes})
    assert os.listdir(tmp_path) == ["images"]


def test_older_results_are_replaced_only_on_demand_and_others_never(source, tmp_path):
    out = tmp_path / "out"
    prepare(str(source), str(out), dry_run=True)
    with pytest.raises(ValueError, match="out exists already"):
        prepare(str(source), str(out))
    prepare(str(source), str(out), overwrite=True)
    assert len(examples(out, "train")) == 14
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "dataset_info.json").write_text("{}")  # another's data set of TensorFlow Datasets
    for other in (source, tmp_path / "digits"):
        with pytest.raises(ValueError, match="holds something else"):
            prepare(str(source), str(other), overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["digits", "out", "images"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
def test_a_run_that_stops_changes_nothing(source, tmp_path, monkeypatch, error):
    prepare(str(source), str(tmp_path / "out"))
    before = everything(tmp_path)

    def interrupted(name, *arguments):
        if name.endswith("03.jpeg"):
            raise error
        return examine(name, *arguments)

    monkeypatch.setattr(builder, "examine", interrupted)
    for output in ("out", "new"):
        with pytest.raises((KeyboardInterrupt, OSError)):
            prepare(str(source), str(tmp_path / output), overwrite=True)
    assert everything(tmp_path) == before


def test_a_split_without_images_is_an_error(tmp_path):
    (tmp_path / "images" / "train" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "train" / "cat" / "1.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"No image of .*train is left. Left out: 1, first cat/1.jpg \(no image"):
        prepare(str(tmp_path / "images"), str(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["images"]
    for name, runner in (("here", None), ("there", "DirectRunner")):
        counts = prepare(str(tmp_path / "images"), str(tmp_path / name), dry_run=True, beam_runner=runner)
        assert counts["train"].unreadable == 1
        assert rows(tmp_path / name / "unreadable-train.csv") == [["cat/1.jpg", "no image of a known format"]]


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "I;16", "LA"])
def test_kinds_of_images_are_kept(mode, tmp_path):
    (tmp_path / "cat").mkdir()
    gray = np.asarray(scene(0).convert("L"))
    image = Image.fromarray(gray.astype("uint16") * 257) if mode == "I;16" else scene(0).convert(mode)
    form = "JPEG" if mode == "CMYK" else "PNG"
    (tmp_path / "cat" / "1").write_bytes(encoded(image, form))
    outcome, _, example = examine("cat/1", str(tmp_path))
    assert outcome == KEPT and example["image"] == encoded(image, form)
    if mode != "LA":
        (tmp_path / "cat" / "1").write_bytes(encoded(image, "TIFF"))
        outcome, _, example = examine("cat/1", str(tmp_path))
        same = image.convert("RGB") if mode == "CMYK" else image
        assert outcome == KEPT and opened(example["image"]).format == "PNG"
        np.testing.assert_array_equal(np.asarray(opened(example["image"])), np.asarray(same))


@pytest.mark.parametrize("mode,most", [("I", 65535), ("I;16B", 65535), ("F", 1.0)])
def test_more_than_8_bits_become_16_and_floats_are_refused(mode, most, tmp_path):
    (tmp_path / "cat").mkdir()
    values = np.random.default_rng(0).uniform(0, most, (40, 50))
    values[0, :2] = (-5, 70_000) if mode == "I" else values[0, :2]
    values = values.astype({"I": "int32", "I;16B": ">u2", "F": "float32"}[mode])
    image = Image.frombytes(mode, (50, 40), values.tobytes()) if mode == "I;16B" else Image.fromarray(values)
    assert image.mode == mode
    (tmp_path / "cat" / "1").write_bytes(encoded(image, "TIFF"))
    outcome, _, result = examine("cat/1", str(tmp_path))
    if mode == "F":
        assert outcome == UNREADABLE and "the pixels are floats" in result[0]
        return
    found = tf.io.decode_png(result["image"], dtype=tf.uint16)[..., 0]
    np.testing.assert_array_equal(found, np.clip(values, 0, 65535))


def test_numbers_of_known_images_count_corrupt_ones(tmp_path):
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
    place = f"tfrecord:{folder}/scenes/1.0.0"
    for source in (place, f"{place}@test"):
        known, unreadable = known_images((source,), 60)
        assert known.names == [f"{place}@test 0", f"{place}@test 2"]
        assert unreadable == [(UNREADABLE, f"{place}@test 1", ("cannot be decoded",))]


def test_known_images_of_folders_and_data_sets(source, data_dir):
    known, unreadable = known_images((f"folder:{source}", "digits@test[:5]"), 60, data_dir)
    assert [name for name in known.names if "digits" in name] == [f"digits@test[:5] {i}" for i in range(5)]
    assert len(known.names) == 16 + 5 and known.words.shape == (4, 21)
    assert [(kind, name) for kind, name, _ in unreadable] == [
        (UNREADABLE, f"{source}/train/dog/{name}") for name in ("cut.jpg", "notes.txt")
    ]
    with pytest.raises(ValueError, match="No split 'holdout'"):
        known_images(("digits@holdout",), 60, data_dir)


def test_unreadable_test_images_are_listed(source, tmp_path):
    (source / "test" / "cat" / "bad.jpg").write_text("no image")
    prepare(str(source), str(tmp_path / "out"), against=(f"folder:{source}/test",))
    (name, _), *others = rows(tmp_path / "out" / "unreadable-against.csv")
    assert name == f"{source}/test/cat/bad.jpg" and not others
