"""Errors of TensorFlow, HDF5, disks and memory, made by the faults themselves, become one sentence."""

import json
import re
import sys

import h5py
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.atomic_write import naming_full_disk
from keras_vit.recipes import configs
from keras_vit_cli.main import main
from keras_vit_cli.process.errors import error_sentence


def truncated_records(folder):
    with tf.io.TFRecordWriter(str(folder / "x.tfrecord")) as writer:
        for _ in range(3):
            writer.write(b"x" * 100)
    (folder / "y.tfrecord").write_bytes((folder / "x.tfrecord").read_bytes()[:-50])
    return tf.function(lambda: tf.data.TFRecordDataset(str(folder / "y.tfrecord")).reduce(0, lambda n, _: n + 1))()


def failed_assertion(folder):
    def check(i):
        with tf.control_dependencies([tf.debugging.Assert(i < 2, ["Too many. So far:", i, "of", 3])]):
            return tf.identity(i)

    return list(tf.data.Dataset.range(3).map(check))


def full_disk(folder):
    with open("/dev/full", "w") as file:
        file.write("x")


def full_disk_of_tensorflow(folder):
    with tf.io.gfile.GFile("/dev/full", "w") as file:
        file.write("x")


def full_disk_of_beam(folder):
    try:
        full_disk(folder)
    except OSError as error:
        raise RuntimeError(f"{error} [while running 'Write']") from None


def damaged_hdf5(folder):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("a", data=np.arange(1000.0), chunks=(100,), compression="gzip")
    content = bytearray((folder / "x.h5").read_bytes())
    content[600:1200] = bytes(600)
    (folder / "x.h5").write_bytes(content)
    with h5py.File(folder / "x.h5") as file:
        return file["a"][:]


def no_memory(folder):
    return np.empty(1 << 60, "uint8")


def no_memory_of_tensorflow(folder):
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9]\n\t [[{{node x}}]]")


def deep_nesting(folder):
    return json.loads("[" * 100_000)


def missing_file(folder):
    return tf.io.read_file(str(folder / "none"))


FAULTS = [
    (truncated_records, "truncated record at 2.*A file is damaged or truncated. Copy or write"),
    (failed_assertion, "^Too many. So far: 2 of 3. Check the images"),
    (full_disk, "^No space is left on the disk. Free some space, or write to another disk.$"),
    (full_disk_of_tensorflow, "^No space is left on the disk: /dev/full. Free some space, or"),
    (full_disk_of_beam, "^No space is left on the disk: .*while running 'Write'.*. Free some space"),
    (damaged_hdf5, "^An HDF5 file is damaged: .*[a-z].*. Copy or download it again.$"),
    (no_memory, "^The memory is exhausted: .*Unable to allocate 1.00 EiB.*a smaller data.batch_size"),
    (no_memory_of_tensorflow, r"^The memory is exhausted: OOM when allocating tensor with shape\[9,9\]. Use a smaller"),
    (deep_nesting, "^A file is nested too deeply"),
    (missing_file, "none; No such file or directory. Check the path"),
]


@pytest.mark.parametrize("fault,message", FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_faults_become_one_sentence(fault, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(configs, "check_dataset", lambda recipe: fault(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as raised:
        fault(tmp_path)
    sentence = error_sentence(raised.value)
    assert len(sentence.splitlines()) == 1 and "{{" not in sentence and "[[" not in sentence
    assert re.search(message, sentence), sentence
    assert main(["train", "cifar10-scratch"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("keras-vit: ") and error.count("\n") == 1 and "Traceback" not in error
    with pytest.raises(type(raised.value)):
        main(["train", "--debug", "cifar10-scratch"])


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/full")
    for path, fix in ((tmp_path, "Free some space, or"), ("/full", "Free some space there, or set TMPDIR to")):
        with pytest.raises(OSError) as raised, naming_full_disk("outer"), naming_full_disk(path):
            full_disk(tmp_path)
        assert error_sentence(raised.value).startswith(f"No space is left on the disk: {path}. {fix}")


def test_errors_that_wrap_others():
    try:
        try:
            deep_nesting(None)
        except RecursionError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError as error:
        assert error_sentence(error).startswith("A file is nested too deeply")


def test_own_messages_are_kept_whatever_they_were_raised_from():
    try:
        try:
            full_disk(None)
        except OSError as error:
            raise ValueError("Choose another folder.") from error
    except ValueError as error:
        assert error_sentence(error) == "Choose another folder."


def test_a_missing_backend():
    missing = ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    assert "pip install 'keras_vit[tensorflow]'" in error_sentence(missing)
    assert error_sentence(ModuleNotFoundError("Install x: pip install x")) == "Install x: pip install x"


def test_own_messages_and_mistakes_in_the_code():
    assert error_sentence(FloatingPointError("It has diverged.")) == "It has diverged."
    assert error_sentence(OSError("x cannot be written: No space left on device. Check")).startswith("x cannot be")
    for mistake in (TypeError("x"), KeyError("x"), RuntimeError("x"), AssertionError()):
        assert error_sentence(mistake) is None


def test_mistakes_in_the_code_have_a_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr(configs, "check_dataset", lambda recipe: 1 / 0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError):
        main(["train", "cifar10-scratch"])


def test_without_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow")
    assert error_sentence(ValueError("x")) == "x" and error_sentence(TypeError("x")) is None
