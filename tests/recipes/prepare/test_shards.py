"""Folders of images as TFRecords: which images are stored, unchanged and in which order, with and without Beam."""

import csv
import io
import os

import numpy as np
import pytest
import tensorflow_datasets as tfds
from full_disk import full_disk
from PIL import Image
from scenes import opened

from keras_vit.recipes.prepare import builder, prepare
from keras_vit.recipes.prepare.outcomes import examine


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def examples(folder, split):
    skip = {"image": tfds.decode.SkipDecoding()}
    dataset = tfds.builder_from_directory(str(folder)).as_dataset(split, decoders=skip)
    return [(e["file_name"].decode(), e["image"], int(e["label"])) for e in dataset.as_numpy_iterator()]


def rows(file):
    return list(csv.reader(io.StringIO(file.read_text())))[1:]


def all_files(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_images_are_stored_unchanged(source, out):
    (source / "train" / "cat" / "deeper").mkdir()
    (source / "train" / "cat" / "gone.jpg").symlink_to(source / "nowhere.jpg")
    counts = prepare(str(source), str(out))
    assert (counts["train"].stored, counts["train"].unreadable, counts["train"].duplicates) == (14, 4, 0)
    assert (counts["test"].stored, counts["test"].shards, sorted(counts)) == (2, 1, ["test", "train"])
    assert sorted(os.listdir(out.parent)) == ["images", "out"]
    classes = ["bird", "cat", "dog"]
    assert tfds.builder_from_directory(str(out)).info.features["label"].names == classes
    stored = examples(out, "train")
    for name, image, label in stored:
        file = source / "train" / name
        assert label == classes.index(file.parent.name)
        if file.suffix == ".bmp":
            assert opened(image).format == "PNG"
            np.testing.assert_array_equal(np.asarray(opened(image)), np.asarray(Image.open(file)))
        else:
            assert image == file.read_bytes()
    names = [name for name, _, _ in stored]
    assert names == sorted(names, key=tfds.core.hashing.Hasher("train").hash_key) != sorted(names)
    assert len(set(names)) == 14
    names, errors = zip(*rows(out / "unreadable-train.csv"))
    assert names == ("cat/deeper", "cat/gone.jpg", "dog/cut.jpg", "dog/notes.txt")
    assert "directory" in errors[0] and "No such file" in errors[1]
    assert errors[2].startswith("OSError: ") and errors[3] == "unknown image format"
    assert rows(out / "unreadable-test.csv") == []


def test_copies_of_test_images_are_removed_only_from_the_training_split(source, out):
    (source / "test" / "cat" / "bad.jpg").write_text("no image")
    counts = prepare(str(source), str(out), against=(f"folder:{source}/test",))
    assert (counts["train"].duplicates, counts["train"].stored, counts["test"].stored) == (2, 12, 2)
    (first, copy_of, bits, mirrored), second = rows(out / "duplicates-train.csv")
    assert (first, copy_of, mirrored) == ("cat/copy0.jpg", f"{source}/test/bird/0.png", "False")
    assert 0 <= int(bits) <= 60
    assert (second[0], second[1], second[3]) == ("cat/copy1.jpg", f"{source}/test/cat/1.png", "True")
    assert not [name for name, _, _ in examples(out, "train") if "copy" in name]
    assert [name for name, _ in rows(out / "unreadable-against.csv")] == [f"{source}/test/cat/bad.jpg"]


@pytest.mark.extended
def test_beam_writes_the_same(source, tmp_path):
    arguments = {"source": str(source), "against": (f"folder:{source}/test",), "shard_megabytes": 0.02}
    threads, beam = tmp_path / "threads", tmp_path / "beam"
    expected = prepare(output=str(threads), **arguments)
    sizes = [file.stat().st_size for file in threads.glob("images-train*")]
    assert 10_000 < np.mean(sizes) <= 21_000 and len(sizes) == expected["train"].shards > 1
    counts = prepare(output=str(beam), beam_runner="DirectRunner", **arguments)
    assert counts["train"].shards > 1
    for split in ("train", "test"):
        assert examples(beam, split) == examples(threads, split)
        assert (counts[split].stored, counts[split].duplicates) == (expected[split].stored, expected[split].duplicates)
    for file in threads.glob("*.csv"):
        assert (beam / file.name).read_text() == file.read_text()


@pytest.mark.slow
def test_dry_run_writes_only_the_lists(source, tmp_path):
    arguments = {"source": str(source), "against": (f"folder:{source}/test",), "dry_run": True}
    counts = prepare(output=str(tmp_path / "threads"), **arguments)
    options = ("direct_num_workers=1", "--no_auth")
    prepare(output=str(tmp_path / "beam"), beam_runner="DirectRunner", beam_options=options, **arguments)
    assert (counts["train"].stored, counts["train"].duplicates, counts["train"].unreadable) == (None, 2, 2)
    files = all_files(tmp_path / "threads")
    names = ("duplicates-test", "duplicates-train", "unreadable-test", "unreadable-train")
    assert sorted(map(str, files)) == [f"{name}.csv" for name in names]
    assert all_files(tmp_path / "beam") == files


def test_flat_source(source, out):
    counts = prepare(str(source / "train"), str(out), train_split="pets", flat=True)
    assert counts["pets"].stored == 14 and len(examples(out, "pets[:50%]")) == 7


def test_invalid_arguments_raise_before_anything_is_written(source, tmp_path):
    train, test_set = str(source / "train"), ("no_such_set@test",)
    cases = [
        ({"source": str(tmp_path / "nowhere")}, "There is no folder .*nowhere"),
        ({"source": train}, "<split>/<class>/<image>. If cat, dog are classes, set --flat"),
        ({"source": f"{train}/cat", "flat": True}, "<class>/<image>"),
        ({"against": ("digits@test",), "train_split": "training"}, "'training' .* --train-split .* test, train"),
        ({"against": (f"folder:{tmp_path}/nowhere",)}, "no images in folder:"),
        ({"against": test_set}, "'no_such_set'"),
        ({"shard_megabytes": 0}, "--shard-megabytes .* Received: 0"),
        ({"threshold_bits": 200, "against": test_set}, "`threshold_bits` .* Received: 200"),  # before anything slow
        ({"beam_options": ("no_auth",)}, "--beam-runner.* Received: no_auth"),
        ({"source": train, "flat": True, "train_split": "all"}, "'all'"),
        ({"source": train, "flat": True, "train_split": "train-1"}, "'train-1'"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            prepare(**{"source": str(source), "output": str(tmp_path / "out"), **changes})
    assert os.listdir(tmp_path) == ["images"]


def test_only_previous_outputs_are_replaced_and_only_with_overwrite(source, out):
    for overwrite in (False, True):
        prepare(str(source), str(out), dry_run=True, overwrite=overwrite)
    with pytest.raises(ValueError, match="out already exists"):
        prepare(str(source), str(out))
    prepare(str(source), str(out), overwrite=True)
    assert len(examples(out, "train")) == 14
    (out.parent / "digits").mkdir()
    (out.parent / "digits" / "dataset_info.json").write_text("{}")  # not written by prepare
    before = all_files(out.parent)
    for other in (source, out.parent / "digits"):
        with pytest.raises(ValueError, match="was not written by"):
            prepare(str(source), str(other), overwrite=True)
    with pytest.raises(ValueError, match="more than lists"):
        prepare(str(source), str(out), dry_run=True, overwrite=True)
    assert all_files(out.parent) == before
    (out / "thesis.txt").write_text("x")
    with pytest.raises(ValueError, match=r"out has files .*: thesis[.]txt"):
        prepare(str(source), str(out), overwrite=True)
    assert (out / "thesis.txt").read_text() == "x"
    assert sorted(os.listdir(out.parent)) == ["digits", "images", "out"]


def test_an_output_that_others_wrote_meanwhile_is_not_replaced(source, out, monkeypatch):
    def examine_while_others_write(*arguments):
        out.mkdir(exist_ok=True)
        (out / "thesis.txt").write_text("x")
        return examine(*arguments)

    monkeypatch.setattr(builder, "examine", examine_while_others_write)
    with pytest.raises(ValueError, match=r"out is not replaced: .* complete in .*out\.complete"):
        prepare(str(source), str(out))
    (kept,) = out.parent.glob("out.*")
    assert os.listdir(out) == ["thesis.txt"] and len(examples(kept, "train")) == 14


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
def test_an_interrupted_run_changes_nothing(source, tmp_path, monkeypatch, error):
    prepare(str(source), str(tmp_path / "out"))
    before = all_files(tmp_path)

    def interrupt(name, *arguments):
        if name.endswith("03.jpeg"):
            raise error
        return examine(name, *arguments)

    monkeypatch.setattr(builder, "examine", interrupt)
    for output in ("out", "new"):
        with pytest.raises((KeyboardInterrupt, OSError)):
            prepare(str(source), str(tmp_path / output), overwrite=True)
    assert all_files(tmp_path) == before


@pytest.mark.slow
def test_a_split_without_stored_images_is_an_error(tmp_path):
    (tmp_path / "images" / "train" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "train" / "cat" / "1.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"Skipped: 1, the first cat/1.jpg"):
        prepare(str(tmp_path / "images"), str(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["images"]
    for name, runner in (("threads", None), ("beam", "DirectRunner")):
        counts = prepare(str(tmp_path / "images"), str(tmp_path / name), dry_run=True, beam_runner=runner)
        assert counts["train"].unreadable == 1
        assert rows(tmp_path / name / "unreadable-train.csv") == [["cat/1.jpg", "unknown image format"]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # progress bars of TensorFlow Datasets
def test_a_full_disk_changes_nothing(source, out):
    with pytest.raises(OSError, match=r"cannot be written: [^{\n]*File too large"):
        with full_disk(500):
            prepare(str(source), str(out))
    assert sorted(os.listdir(out.parent)) == ["images"]
