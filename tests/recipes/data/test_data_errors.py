"""Faults of data that are noticed only while training or evaluating, and what is said about them."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import int64_feature, jpeg, write_record

from keras_vit.recipes import fit
from keras_vit.recipes.data import (
    corrupt_images,
    decoded_images,
    evaluation_batches,
    open_dataset,
    read_encoded,
    read_labels,
    training_batches,
)
from keras_vit.recipes.data.corrupt_images import count_skipped, mark_named, skipped_summary
from keras_vit.recipes.data.image_dataset import report_data_errors
from keras_vit.recipes.recipe import Architecture, Data, Distillation, Optimizer, Supervised
from keras_vit.recipes.runs.supervised import compile_for_evaluation
from keras_vit.weights import save

DATA = Data(image_size=16, batch_size=4, crop="none", validation_split=None)
DAMAGED = b"\xff\xd8\xff damaged"


def write_files(folder, labels, names="a\nb\n"):
    """A TFRecord for each list of labels."""
    (folder / "labels.txt").write_text(names)
    for shard, part in enumerate(labels):
        with tf.io.TFRecordWriter(f"{folder}/train-{shard:05}-of-{len(labels):05}") as writer:
            for label in part:
                write_record(writer, ("image", "label"), int64_feature(label))


def write_images(folder, contents, classes="ab"):
    for class_name in classes:
        (folder / class_name).mkdir(parents=True, exist_ok=True)
        for i, content in enumerate(contents):
            (folder / class_name / f"{i}.jpg").write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["label", "record"])
def test_labels_without_a_name_and_damaged_records(tmp_path, monkeypatch, fault):
    """Both of Keras's loops raise one sentence."""
    if fault == "label":
        monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_FILES", 1)
        write_files(tmp_path, [[0, 1, 0], [0, 2, 0]])
        words = ".*/train-00001-of-00002 image 1 .*label 2 .* 2 classes"
    else:
        monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_RECORDS", 2)
        write_files(tmp_path, [[0] * 30])
        file = tmp_path / "train-00000-of-00001"
        content = bytearray(file.read_bytes())
        content[-300] ^= 255
        file.write_bytes(content)
        words = r".*corrupted record at \d+"
    data = replace(DATA, dataset=f"tfrecord:{tmp_path}")
    dataset = open_dataset(data)
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    with pytest.raises(ValueError, match=f"^The dataset {data.dataset} cannot be read: {words}"):
        with report_data_errors(dataset):
            model.fit(training_batches(data, dataset, seed=0), steps_per_epoch=8, shuffle=False, verbose=0)
    with pytest.raises(ValueError, match=f"^The split 'train' of {data.dataset} cannot be read: {words}") as caught:
        with report_data_errors(dataset, "train"):
            model.evaluate(evaluation_batches(data, dataset, "train"), verbose=0)
    assert "\n" not in str(caught.value) and "node" not in str(caught.value)
    with pytest.raises(tf.errors.InvalidArgumentError), report_data_errors(dataset):  # other errors are passed on
        tf.debugging.Assert(tf.constant(False), ["something else"])


def test_truncated_files_are_named_when_the_dataset_is_opened(tmp_path, monkeypatch):
    """At any length, also where whole records remain to be checked."""
    monkeypatch.setattr("keras_vit.recipes.data.tfrecords.CHECKED_RECORDS", 2)
    write_files(tmp_path, [[0] * 5, [1] * 5])
    file = tmp_path / "train-00001-of-00002"
    content = file.read_bytes()
    record = len(content) // 5
    for length in (len(content) - 1, len(content) - 40, 4 * record + 1, 3 * record + 11, 3 * record + 12):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"train-00001-of-00002 is truncated .* {length:,} bytes"):
            open_dataset(Data(dataset=f"tfrecord:{tmp_path}"))
    file.write_bytes(content)
    assert open_dataset(Data(dataset=f"tfrecord:{tmp_path}")).splits == {"train": 10}


def test_corrupt_images_have_no_loss(tmp_path, toy):
    """The mean over the images that can be decoded: the logarithm of 2 for equal logits."""
    write_images(tmp_path / "test", [jpeg(0), jpeg(40), jpeg(80), DAMAGED, DAMAGED])
    data = replace(DATA, dataset=f"folder:{tmp_path}", max_corrupt=0.5)
    model = toy(image_size=16, num_classes=2)
    model.head.kernel.assign(0 * model.head.kernel)
    compile_for_evaluation(model, Supervised(data=data), 2)
    metrics = fit.evaluate(model, data, "test")
    assert metrics["images"] == 6 and metrics["loss"] == pytest.approx(np.log(2), rel=1e-6)


def test_names_and_counts_of_skipped_images(capsys, monkeypatch):
    """Each image is named once, and again at the end of the run."""
    monkeypatch.setattr(corrupt_images, "_skipped", {})
    monkeypatch.setattr(corrupt_images, "_named", set())
    assert skipped_summary() == ""
    for names in ([b"x.jpg"], [b"y.jpg", b"x.jpg"], ["y.jpg"]):
        count_skipped("folder:a", names)
    printed = capsys.readouterr().err
    assert printed.count("x.jpg") == printed.count("y.jpg") == 1
    assert "2 (x.jpg, y.jpg)" in skipped_summary()
    assert skipped_summary() == ""  # of another run
    count_skipped("folder:b", ["x.jpg"])
    assert "x.jpg" in capsys.readouterr().err and "1 (x.jpg)" in skipped_summary()
    mark_named("folder:c", ["x.jpg"])  # named in another message
    count_skipped("folder:c", ["x.jpg"])
    assert capsys.readouterr().err == "" and "1 (x.jpg)" in skipped_summary()
    monkeypatch.setattr("builtins.print", lambda *_, **__: (_ for _ in ()).throw(BrokenPipeError))
    count_skipped("folder:d", ["x.jpg"])  # the stream is closed
    assert "1 (x.jpg)" in skipped_summary()


@pytest.fixture
def digits(data_dir):
    return open_dataset(Data(dataset="digits", data_dir=data_dir))


def test_indices_select_images(digits):
    all_images, all_labels = zip(*decoded_images(digits, "test[:10]", 10))
    images, labels = zip(*decoded_images(digits, "test[:10]", 2, max_corrupt=0, indices=np.array([7, 2, 3])))
    assert [len(batch) for batch in images] == [2, 1]
    for image, index in zip((image for batch in images for image in batch), (2, 3, 7)):
        np.testing.assert_array_equal(image, all_images[0][index])
    np.testing.assert_array_equal(np.concatenate(labels), all_labels[0][[2, 3, 7]])
    for size in (0, -4):
        with pytest.raises(ValueError, match=f"`batch_size` .* {size}"):
            next(decoded_images(digits, "test", size))


def test_files_of_another_length_are_reported_and_not_read_forever(digits):
    cut = tf.data.experimental.assert_cardinality(12)  # as TensorFlow Datasets expects of its files
    damaged = replace(digits, read=lambda split: digits.read(split).apply(cut))
    for read in (lambda *x: list(decoded_images(*x, 4)), lambda *x: list(read_encoded(*x)), read_labels):
        with pytest.raises(ValueError, match=r"cannot be read: [^{[]*contain 12 elements"):
            read(damaged, "test[:10]")


@pytest.fixture
def fields(tmp_path, monkeypatch):
    """Fields of a recipe for a folder of cats and dogs. What passes the checks is not trained."""
    monkeypatch.setattr(fit.loop, "fit", lambda *_: {})
    write_images(tmp_path / "data", [jpeg(40 * i) for i in range(5)], ("cat", "dog"))
    architecture = Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3)
    data = replace(DATA, dataset=f"folder:{tmp_path}/data")
    return {"data": data, "architecture": architecture, "optimizer": Optimizer(warmup_steps=0), "total_steps": 1}


def test_a_kept_head_has_the_classes_of_the_data(fields, trained_toy, tmp_path):
    recipe, swapped = Supervised(**fields, keep_head=True), trained_toy(num_classes=2, class_names=["dog", "cat"])
    swapped.save(tmp_path / "model.keras")
    saved = replace(recipe, weights=str(tmp_path / "model.keras"))
    for arguments in ((recipe, swapped), (saved,)):
        with pytest.raises(ValueError, match="class 0 is 'dog' .*'cat'"):
            fit.train(*arguments)
    (tmp_path / "labels.txt").write_text("cat\ndog\n")  # the user states that the names in the file are wrong
    model, _ = fit.train(saved)
    assert model.class_names == ("cat", "dog")
    swapped.class_names = ["kitten", "puppy"]  # in memory: perhaps the same classes in other words
    fit.train(recipe, swapped)


@pytest.mark.parametrize("name,classes", [("x.keras", ["cat", "yak"]), ("folder", ["dog", "cat"])])
def test_a_teacher_has_the_classes_of_the_data(fields, trained_toy, tmp_path, name, classes):
    save(trained_toy(num_classes=2), tmp_path / name, class_names=classes)
    recipe = Distillation(**fields, teacher=str(tmp_path / name), distillation_token=False)
    with pytest.raises(ValueError, match="teacher .* classes"):
        fit.train(recipe)
